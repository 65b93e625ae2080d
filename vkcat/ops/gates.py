"""What shaders/include/gates.glsl is in NumPy: gate functions, their error, and what a step does to a stream."""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array

HOLD, STEP, RESTART = 0, 1, 2
"""A stream's state stays as it is; it advances; it advances from zero, whatever it held."""

GATE_ERROR = 16 * UNIT_ROUNDOFF
"""Absolute error allowed to sigmoid and tanh in float32.

Vulkan allows exp 3 + 2|x| units in the last place and a division 2.5; with a non-positive exponent that gives at most
about 8 units at 1 for either function.
"""


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def draw_modes(rng: np.random.Generator, batch: int) -> Array:
    """A mode for each stream of a case, all kinds among them; the first steps."""
    mode = rng.choice(np.array([HOLD, STEP, STEP, RESTART], np.uint32), batch)
    mode[0] = STEP
    return mode
