"""What shaders/include/gates.glsl is in NumPy: gate functions, their error, and what a step does to a stream."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import SMALLEST, UNIT_ROUNDOFF, Array, underflow

HOLD, STEP, RESTART = 0, 1, 2
"""A stream's state stays as it is; it advances; it advances from zero, whatever it held."""

GATE_ERROR = 16 * UNIT_ROUNDOFF
"""Absolute error allowed to sigmoid and tanh in float32.

Vulkan allows exp 3 + 2|x| units in the last place and a division 2.5; with a non-positive exponent that gives at most
about 8 units at 1 for either function.
"""


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow, and as precise where it is small."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1.0) / (1 + e))


def sigmoid_error(x: Array) -> Array:
    """Bound on the error of sigmoid, that small ones are relative to: of exp twice, a sum, a division and a product."""
    relative = (3 * (3 + 2 * np.minimum(np.abs(x), 200)) + 8) * UNIT_ROUNDOFF
    return np.asarray(np.minimum(GATE_ERROR, relative * sigmoid(x) + SMALLEST))


def draw_modes(rng: np.random.Generator, batch: int) -> Array:
    """A mode for each stream of a case, all kinds among them; the first steps."""
    mode = rng.choice(np.array([HOLD, STEP, STEP, RESTART], np.uint32), batch)
    mode[0] = STEP
    return mode


def gated(gate: Array, up: Array, situ: bool) -> Array:
    """The hidden units of a gated MLP: silu(gate) * up, or SiTU, which bounds both factors."""
    first, second = _factors(gate, up, situ)
    return np.asarray(first * second)


def _factors(gate: Array, up: Array, situ: bool) -> tuple[Array, Array]:
    if situ:
        return np.asarray(4 * np.tanh(gate / 4) * sigmoid(gate)), np.asarray(25 * np.tanh(up / 25))
    return np.asarray(gate * sigmoid(gate)), up


def gated_operations(attributes: Mapping[str, float]) -> int:
    """Floating-point operations of one hidden unit in `gated`: of its two factors and their product."""
    return 5 + 3 + 1 if attributes["situ"] else 2 + 1


def gated_error(gate: Array, up: Array, gate_error: Array, up_error: Array, situ: bool) -> Array:
    """Bound on the float32 error of `gated`: silu and SiTU's gate have slopes of at most 1.1, its up part at most 1."""
    first, second = _factors(gate, up, situ)
    e_first = 1.1 * gate_error + (8 * GATE_ERROR if situ else np.abs(gate) * GATE_ERROR)
    e_second = up_error + 25 * GATE_ERROR if situ else up_error
    products = np.abs(second) * e_first + np.abs(first) * e_second + e_first * e_second
    size = np.abs(first * second)
    return np.asarray(products + 4 * UNIT_ROUNDOFF * size + underflow(size, 1 + np.abs(second)))
