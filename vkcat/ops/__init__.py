"""The list of ops. Adding one is its shader, its module here and its line below."""

from vkcat.kernel import Kernel
from vkcat.ops import (
    argmax,
    embedding,
    gru_candidate,
    gru_cell,
    gru_gates,
    linear,
    modulation,
    ring_attention,
    ring_write,
    rms_norm,
)

OPS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        embedding.KERNEL,
        linear.KERNEL,
        gru_cell.KERNEL,
        gru_gates.KERNEL,
        gru_candidate.KERNEL,
        argmax.KERNEL,
        rms_norm.KERNEL,
        ring_write.KERNEL,
        ring_attention.KERNEL,
        modulation.KERNEL,
    )
}
