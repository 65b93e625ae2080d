#include "layer.h"

#include <stdlib.h>
#include <string.h>

bool setting(const char *name, double *number) {
    const char *at = getenv("VKCAT_TEST_LAYER");
    size_t length = strlen(name);
    while (at != NULL && *at != '\0') {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            *number = strtod(at + length + 1, NULL);
            return true;
        }
        at = strchr(at, ' ');
        if (at != NULL) ++at;
    }
    return false;
}
