"""The list of ops. Adding one is its shader, its module here and its line below."""

from vkcat.kernel import Kernel
from vkcat.ops import (
    add,
    argmax,
    delta_memory,
    depth_attnres,
    depth_dwa,
    embedding,
    gated_norm,
    gru_candidate,
    gru_cell,
    gru_gates,
    linear,
    mlp,
    modulation,
    moe_capacity,
    moe_combine,
    moe_expert,
    moe_route,
    patch_embedding,
    ring_attention,
    ring_write,
    rms_norm,
    sample,
    short_conv,
    silu,
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
        moe_capacity.KERNEL,
        moe_combine.KERNEL,
        mlp.KERNEL,
        add.KERNEL,
        silu.KERNEL,
        depth_dwa.KERNEL,
        depth_attnres.KERNEL,
        patch_embedding.KERNEL,
        sample.KERNEL,
    )
}
