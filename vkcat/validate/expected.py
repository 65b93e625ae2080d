"""What a node should give: its reference's values and its bounds, by binding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.graph import Node, Tensor
from vkcat.kernel import HALF_SMALLEST, SMALLEST
from vkcat.reference import node_inputs

Array = NDArray[Any]


class Expected(Struct, frozen=True):
    values: dict[str, Array]
    bounds: dict[str, Array]


def expectation(node: Node, given: Mapping[Tensor, Array], got: Mapping[str, Array]) -> Expected:
    """By the inputs as they are. Where a device may have taken those below normal numbers for zero, and `got` is what
    they give then, by these. Indices that rounding decides are as `got` has them.
    """
    plain = _expected(node, given, got)
    flushed = {tensor: _flushed(array) for tensor, array in given.items()}
    if all(flushed[tensor] is array for tensor, array in given.items()):
        return plain
    other = _expected(node, flushed, got)
    values, bounds = {}, {}
    for name in plain.values:
        with np.errstate(invalid="ignore"):
            near, far = (np.abs(got[name] - one.values[name]) <= one.bounds[name] for one in (plain, other))
        taken = far & ~near
        values[name] = np.where(taken, other.values[name], plain.values[name])
        bounds[name] = np.where(taken, other.bounds[name], plain.bounds[name])
    return Expected(values, bounds)


def _expected(node: Node, given: Mapping[Tensor, Array], got: Mapping[str, Array]) -> Expected:
    chosen = {f"chosen_{name}": got[name] for name in node.kernel.choices}
    inputs = node_inputs(node, given) | chosen
    return Expected(node.kernel.reference(inputs), node.kernel.bound(inputs))


def _flushed(array: Array) -> Array:
    """The same array where it holds no number below the normal ones, else with zeros for these."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    small = (array != 0) & (np.abs(array) < (HALF_SMALLEST if array.dtype == np.float16 else SMALLEST))
    return np.where(small, np.zeros((), array.dtype), array) if small.any() else array
