"""The references themselves: gates at extremes, argmax against a loop."""

from __future__ import annotations

import math

import numpy as np

from vkcat.ops import OPS
from vkcat.ops.gates import sigmoid


def test_sigmoid_and_tanh_do_not_overflow() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_gru_cell_is_the_scalar_equation() -> None:
    t = {
        "x": np.array([[2.0]]),
        "h": np.array([[0.5]]),
        "w_ih": np.array([[0.1], [0.2], [0.3]]),
        "w_hh": np.array([[0.4], [0.5], [0.6]]),
        "b_ih": np.array([0.01, 0.02, 0.03]),
        "b_hh": np.array([0.04, 0.05, 0.06]),
        "mode": np.array([1], np.uint32),
    }
    r = 1 / (1 + math.exp(-(0.2 + 0.01 + 0.2 + 0.04)))
    z = 1 / (1 + math.exp(-(0.4 + 0.02 + 0.25 + 0.05)))
    n = math.tanh(0.6 + 0.03 + r * (0.3 + 0.06))
    got = OPS["gru_cell"].reference(t)["h_next"]
    assert abs(got.item() - ((1 - z) * n + z * 0.5)) < 1e-15
    gates = OPS["gru_gates"].reference(t)
    assert abs(gates["rh"].item() - r * 0.5) < 1e-15
    n = math.tanh(0.6 + 0.03 + 0.6 * r * 0.5 + 0.06)
    got = OPS["gru_candidate"].reference(t | gates)["h_next"]
    assert abs(got.item() - ((1 - z) * n + z * 0.5)) < 1e-15


def test_argmax_is_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (200, 5)).astype(np.float64)
    x[rng.random(x.shape) < 0.3] = np.nan
    x[rng.random(x.shape) < 0.3] = -np.inf
    expected = []
    for row in x:
        best = 0
        for v, value in enumerate(row):
            if not math.isnan(value) and (math.isnan(row[best]) or value > row[best]):
                best = v
        expected.append(best)
    assert OPS["argmax"].reference({"x": x})["index"].tolist() == expected
