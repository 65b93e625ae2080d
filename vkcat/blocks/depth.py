"""Depth policies: what the block after v_at reads, h_{at+1}, from v_0 to v_at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.blocks.scope import Scope, zeros
from vkcat.config import AttnresDepth, Depth, DwaDepth, PlainDepth, ResidualDepth
from vkcat.graph import Tensor

Mixer = Callable[[int, Tensor], Tensor]
"""Takes the number of a source (0: the input) and the source v (B, D); returns what comes next reads."""


def depth_mixer(scope: Scope, prefix: str, depth: Depth, count: int) -> Mixer:
    """The policy over an input and `count` blocks. The mixer is called once for each, in order."""
    if isinstance(depth, PlainDepth):
        return lambda at, v: v
    if isinstance(depth, ResidualDepth):
        return _residual(scope, prefix)
    if isinstance(depth, DwaDepth):
        return _dwa(scope, prefix, count)
    return _attnres(scope, prefix, depth, count)


def _residual(scope: Scope, prefix: str) -> Mixer:
    sums: list[Tensor] = []

    def mix(at: int, v: Tensor) -> Tensor:
        sums.append(scope.add(f"{prefix}depth.{at}", sums[-1], v) if sums else v)
        return sums[-1]

    return mix


def _one_hot(at: int) -> Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        del rng
        return np.asarray(np.eye(1, shape[0], at)[0])

    return draw


def _dwa(scope: Scope, prefix: str, count: int) -> Mixer:
    read: list[Tensor] = []

    def mix(at: int, v: Tensor) -> Tensor:
        shared, name = scope.shared, f"{prefix}depth.{at}"
        h = read[-1] if read else shared.zeros(*v.shape)
        alpha = shared.weight(f"{name}.alpha", count + 1, initial=_one_hot(at))
        sources = shared.scratch(f"{prefix}depth.sources", v.shape[0], count + 1, v.shape[-1])
        (y,) = scope.graph.add("depth_dwa", name, {"at": at}, v=v, h=h, alpha=alpha, sources=sources)
        read.append(y)
        return y

    return mix


def _attnres(scope: Scope, prefix: str, depth: AttnresDepth, count: int) -> Mixer:
    sums: list[Tensor] = []

    def mix(at: int, v: Tensor) -> Tensor:
        shared, name, width = scope.shared, f"{prefix}depth.{at}", v.shape[-1]
        # The input is a source of its own, then `block` layers share one.
        source, place = (0, 0) if at == 0 else (1 + (at - 1) // depth.block, (at - 1) % depth.block)
        if depth.gated:
            gamma = shared.weight(f"{name}.gamma", 1, initial=zeros)
        else:
            gamma = shared.constant("one", np.ones(1, np.float32))
        y, after = scope.graph.add(
            "depth_attnres",
            name,
            {"at": source, "fresh": float(place == 0), "eps": scope.eps},
            v=v,
            before=sums[-1] if sums else shared.zeros(*v.shape),
            query=shared.weight(f"{name}.query", width, initial=zeros),
            gamma=gamma,
            sources=shared.scratch(f"{prefix}depth.sources", v.shape[0], 1 + -(-count // depth.block), width),
        )
        sums.append(after)
        return y

    return mix
