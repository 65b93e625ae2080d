"""`ring_attention`: attention over the last W steps. State: keys and values (B, W, G d) each, and the count (B)."""

from __future__ import annotations

import numpy as np

from vkcat.blocks.scope import Scope
from vkcat.config import RingAttentionBlock
from vkcat.graph import Tensor


def alibi(heads: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Slopes 2^(-8 i / N), i = 1 to N, as in arXiv 2108.12409 for a power of two, and as they are between."""
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).astype(np.float32)


def ring_attention(scope: Scope, name: str, block: RingAttentionBlock, x: Tensor) -> Tensor:
    graph, shared = scope.graph, scope.shared
    narrow = block.groups * block.head_width
    q = scope.linear(f"{name}.q", x, block.heads * block.head_width)
    k = scope.linear(f"{name}.k", x, narrow)
    v = scope.linear(f"{name}.v", x, narrow)
    rings = {ring: shared.memory(f"{name}.{ring}", block.window, narrow) for ring in ("k_ring", "v_ring")}
    t = shared.state(f"{name}.t", dtype="uint32")
    if block.slopes == "alibi":
        slopes = shared.constant(f"alibi({block.heads})", alibi(block.heads))
    else:
        slopes = shared.zeros(block.heads)
    written = {"k": k, "v": v, "t": t, **scope.reading, **rings}
    if scope.lengths is None:
        (count,) = graph.add("ring_write", f"{name}.write", **written)
        (o,) = graph.add("ring_attention", name, q=q, t=count, slopes=slopes, **rings)
    else:
        (o,) = graph.add("ring_sequence", name, q=q, slopes=slopes, **written)
        (count,) = graph.add("ring_extend", f"{name}.write", **written)
    graph.carry(t, count)
    return scope.linear(f"{name}.o", o, x.shape[-1])
