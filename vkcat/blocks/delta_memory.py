"""`delta_memory`: Kimi delta attention. State: S (B, N K, V), and the convolutions' last inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.blocks.scope import Scope, fan_in, ones
from vkcat.config import DeltaMemoryBlock
from vkcat.graph import Tensor


def _decay_rates(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """A, so that exp A is uniform in 1 to 16, as Mamba 2's and Kimi Linear's."""
    return np.asarray(np.log(rng.uniform(1, 16, shape)))


def _retention_bias(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse softplus of time steps that are uniform in their logarithm from 0.001 to 0.1, as Mamba 2's."""
    step = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), shape))
    return np.asarray(step + np.log(-np.expm1(-step)))


def delta_memory(scope: Scope, name: str, block: DeltaMemoryBlock, x: Tensor) -> Tensor:
    graph, shared = scope.graph, scope.shared
    keys, values = block.heads * block.key, block.heads * block.value
    mixed = {
        part: _mixed(scope, f"{name}.{part}", block, x, width)
        for part, width in (("q", keys), ("k", keys), ("v", values))
    }
    beta = scope.linear(f"{name}.beta", x, block.heads)
    down = scope.linear(f"{name}.retention_down", x, block.rank)
    z = scope.linear(f"{name}.retention_up", down, keys, bias=_retention_bias)
    (o,) = graph.add(
        "delta_memory" if scope.lengths is None else "delta_sequence",
        name,
        {"bounded": float(block.decay == "bounded")},
        **mixed,
        beta=beta,
        z=z,
        a=shared.weight(f"{name}.a", block.heads, initial=_decay_rates),
        memory=shared.memory(f"{name}.memory", keys, block.value),
        **scope.reading,
    )
    gate = scope.linear(f"{name}.gate", x, values)
    gain = shared.weight(f"{name}.norm.weight", block.value, initial=ones)
    (y,) = graph.add("gated_norm", f"{name}.norm", {"eps": scope.eps}, x=o, gate=gate, gain=gain)
    return scope.linear(f"{name}.o", y, x.shape[-1])


def _mixed(scope: Scope, name: str, block: DeltaMemoryBlock, x: Tensor, width: int) -> Tensor:
    """swish(conv(W x)), or swish(W x)."""
    graph, shared, length = scope.graph, scope.shared, block.convolution
    made = scope.linear(name, x, width)
    if length == 0:
        (y,) = graph.add("silu", f"{name}.swish", x=made)
        return y
    w = shared.weight(f"{name}.convolution.weight", width, length, initial=fan_in(length))
    history = shared.state(f"{name}.history", length - 1, width)
    op = "short_conv" if scope.lengths is None else "conv_sequence"
    y, after = graph.add(op, f"{name}.convolution", x=made, w=w, history=history, **scope.reading)
    graph.carry(history, after)
    return y
