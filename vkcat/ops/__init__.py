"""The list of ops. Adding one is its shader, its module here and its line below."""

from vkcat.kernel import Kernel
from vkcat.ops import (
    argmax,
    delta_memory,
    embedding,
    gated_norm,
    gru_candidate,
    gru_cell,
    gru_gates,
    linear,
    modulation,
    moe_combine,
    moe_expert,
    moe_route,
    ring_attention,
    ring_write,
    rms_norm,
    short_conv,
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
        short_conv.KERNEL,
        delta_memory.KERNEL,
        gated_norm.KERNEL,
        moe_route.KERNEL,
        moe_expert.KERNEL,
        moe_combine.KERNEL,
    )
}
