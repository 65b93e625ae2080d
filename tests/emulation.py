"""The layer of tests/layer/, built and driven: emulated properties, calls that fail, living objects counted."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "layer"
NAME = "VK_LAYER_VKCAT_test"
INSTALLED = "/usr/share/vulkan/explicit_layer.d"

RESULTS = {
    "VK_ERROR_OUT_OF_HOST_MEMORY": -1,
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": -2,
    "VK_ERROR_INITIALIZATION_FAILED": -3,
    "VK_ERROR_DEVICE_LOST": -4,
    "VK_ERROR_MEMORY_MAP_FAILED": -5,
    "VK_ERROR_TOO_MANY_OBJECTS": -10,
    "VK_ERROR_FRAGMENTED_POOL": -12,
    "VK_TIMEOUT": 2,
    "VK_ERROR_OUT_OF_POOL_MEMORY": -1000069000,
    "VK_ERROR_FRAGMENTATION": -1000161000,
    "VK_ERROR_INVALID_SHADER_NV": -1000012000,
}
"""By name, each VkResult that calls are made to give."""


@lru_cache(maxsize=1)
def _library() -> Path:
    """The layer, compiled, with its manifest beside it; in a process of a test's, that of the test."""
    if "VKCAT_TEST_LIBRARY" in os.environ:
        return Path(os.environ["VKCAT_TEST_LIBRARY"])
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "no C compiler; tools/setup --tests installs one"
    folder = Path(tempfile.mkdtemp(prefix="vkcat-layer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libVkLayer_vkcat_test.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, "-o", library, *sorted(SOURCES.glob("*.c"))], check=True)
    layer = {
        "name": NAME,
        "type": "GLOBAL",
        "library_path": str(library),
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "emulated devices and faults",
    }
    manifest = {"file_format_version": "1.2.0", "layer": layer}
    (folder / "layer.json").write_text(json.dumps(manifest))
    return library


def variables(**settings: float) -> dict[str, str]:
    """What a process's environment needs so that its devices have these properties, named as in Vulkan.

    With properties the layer is the last, next to the driver, so that the validation layer takes them for the device's.
    Without, when calls are to fail, it is the first: the validation layer cannot tell that a lost device uses nothing
    more, and sees what then becomes of a driver that did not fail.
    """
    before = [name for name in os.environ.get("VK_INSTANCE_LAYERS", "").split(os.pathsep) if name not in ("", NAME)]
    own = str(_library().parent)
    layers, folders = ([*before, NAME], [INSTALLED, own]) if settings else ([NAME, *before], [own, INSTALLED])
    return {
        # Older loaders order layers by where they are found, not as they are named.
        "VK_LAYER_PATH": os.pathsep.join(folders),
        "VK_INSTANCE_LAYERS": os.pathsep.join(layers),
        "VKCAT_TEST_LIBRARY": str(_library()),
        "VKCAT_TEST_LAYER": " ".join(f"{name}={number}" for name, number in settings.items()),
    }


def printed(script: str, *arguments: str, **changes: str) -> list[dict[str, Any]]:
    """The lines of JSON of a script of the tests, in a process that has the layer. A crash or a hang fails here."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script, *arguments],
        cwd=SOURCES.parent,
        env={**os.environ, **variables(), **changes},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


class Layer:
    """The layer in this process: what is to fail, and what is alive."""

    def __init__(self) -> None:
        # The loader opens the same file, and so the same counters.
        self._library = ctypes.CDLL(str(_library()))
        self._library.vkcat_calls.restype = ctypes.c_long
        self._library.vkcat_failed.restype = ctypes.c_char_p

    def arm(self, result: int, n: int = 0) -> None:
        """The n-th call from now that may give this VkResult gives it, n from 1; with 0 such calls are counted."""
        self._library.vkcat_arm(ctypes.c_int(result), ctypes.c_long(n))

    def disarm(self) -> None:
        self.arm(0)

    @property
    def calls(self) -> int:
        """How many calls since `arm` could give what it asked for."""
        return int(self._library.vkcat_calls())

    @property
    def failed(self) -> str:
        """The function that was made to fail; empty as long as none was."""
        return str(self._library.vkcat_failed().decode())

    def alive(self) -> dict[str, int]:
        """How many Vulkan objects of each kind there are; kinds of which there are none are left out."""
        return {kind: alive for kind, (alive, _) in self._objects().items() if alive}

    def made(self) -> dict[str, int]:
        """How many Vulkan objects of each kind there have been."""
        return {kind: made for kind, (_, made) in self._objects().items()}

    def _objects(self) -> dict[str, tuple[int, int]]:
        text = ctypes.create_string_buffer(4096)
        self._library.vkcat_objects(text, ctypes.c_size_t(len(text)))
        lines = [line.split() for line in text.value.decode().splitlines()]
        return {kind: (int(alive), int(made)) for kind, alive, _, made in lines}
