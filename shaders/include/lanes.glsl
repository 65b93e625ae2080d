// A workgroup of as many invocations as vkcat chooses by device (vkcat/tiling.py): on a software driver no more than its
// vectors hold, since it keeps what invocations have at a barrier in memory.
layout(local_size_x = 64, local_size_x_id = 3) in;
