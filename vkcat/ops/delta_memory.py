"""Gated delta memory (Kimi Delta Attention), one step; per head a state S of (K, V), S_0 = 0.

    q, k <- q / |q| * K^-0.5, k / |k|            |x| = sqrt(sum x^2 + 1e-6)
    b = sigmoid(beta)                            one a head: how strongly it writes
    g = -exp(A) * softplus(z)                    one a key channel: how fast it forgets;  `bounded` = 0
    g = -5 * sigmoid(exp(A) * z)                                                          `bounded` = 1
    S <- diag(exp g) S;  d = b * (v - S^T k);  S <- S + k d^T;  o = S^T q

Source: Kimi Linear, arXiv 2510.26692, equations 1 and 10. |k| <= 1, 0 < b < 1 and exp g < 1 bound the transition's
spectral norm by 1.

| tensor | shape | dtype |
|---|---|---|
| q, k, z | (B, R), R = N K | float32 |
| v, o | (B, P), P = N V | float32 |
| beta | (B, N) | float32 |
| a | (N) | float32 |
| mode | (B) | uint32: 0 hold (S stays; o is its answer), 1 step, 2 restart (S is zero before) |
| memory | (B, R, V): each head's K rows, updated in place | float32 |

K is at most 1024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, underflow
from vkcat.ops.gates import GATE_ERROR, HOLD, RESTART, draw_modes, sigmoid
from vkcat.ops.squares import sum_of_squares
from vkcat.tiling import Tiling, of_columns

WIDEST = 1024
L2_EPS = 1e-6


def _heads(array: Array, count: int) -> Array:
    """(B, N * n) as (B, N, n)."""
    return array.reshape(len(array), count, -1)


def _unit(x: Array) -> Array:
    return np.asarray(x / np.sqrt(sum_of_squares(x, -1) + L2_EPS))


def log_decay(t: Arrays) -> Array:
    """g of (B, N, K)."""
    rate = np.exp(t["a"])[:, None]
    z = _heads(t["z"], len(t["a"]))
    if t["bounded"]:
        return np.asarray(-5 * sigmoid(rate * z))
    return np.asarray(-rate * np.logaddexp(0, z))


def decay_operations(attributes: Mapping[str, float]) -> int:
    """Floating-point operations of one channel in `log_decay`; the rate is one more a head."""
    return 3 if attributes["bounded"] else 2


def parts(t: Arrays) -> dict[str, Array]:
    """q, k (B, N, K), v (B, N, V), b (B, N, 1), keep = exp g (B, N, K) and S (B, N, K, V) before the step."""
    N = len(t["a"])
    held = (t["mode"] == HOLD)[:, None, None]
    memory = np.where((t["mode"] == RESTART)[:, None, None], 0.0, t["memory"])
    q = _unit(_heads(t["q"], N))
    return {
        "q": q / math.sqrt(q.shape[-1]),
        "k": _unit(_heads(t["k"], N)),
        "v": _heads(t["v"], N),
        # A held stream neither forgets nor writes.
        "b": np.where(held, 0.0, sigmoid(t["beta"])[..., None]),
        "keep": np.where(held, 1.0, np.exp(log_decay(t))),
        "S": memory.reshape(len(memory), N, -1, memory.shape[-1]),
    }


def reference(t: Arrays) -> dict[str, Array]:
    p = parts(t)
    S = p["keep"][..., None] * p["S"]
    d = p["b"] * (p["v"] - np.einsum("bnkv,bnk->bnv", S, p["k"]))
    S = S + p["k"][..., None] * d[:, :, None]
    o = np.einsum("bnkv,bnk->bnv", S, p["q"])
    return {"memory": S.reshape(t["memory"].shape), "o": o.reshape(t["v"].shape)}


def decay_error(t: Arrays) -> Array:
    """Relative error of exp g, (B, N, K)."""
    u = UNIT_ROUNDOFF
    rate = np.exp(t["a"])[:, None]
    g = log_decay(t)
    if t["bounded"]:
        # The gate's slope is at most 1/4, and its argument's relative error that of the rate.
        argument = np.abs(rate * _heads(t["z"], len(t["a"]))) * (2 * (3 + 2 * np.abs(t["a"]))[:, None] + 2) * u
        g_error = 5 * (np.minimum(argument / 4, 1) + GATE_ERROR)
    else:
        g_error = rate * 16 * u + np.abs(g) * (2 * (3 + 2 * np.abs(t["a"]))[:, None] + 8) * u
    return np.asarray(np.expm1(g_error) + 2 * (3 + 2 * np.abs(g)) * u)


def bound(t: Arrays) -> dict[str, Array]:
    """First-order propagation of every rounding, elementwise.

    Vulkan's log has an absolute error of 2^-21 near 1, its exp a relative one of 3 + 2|x| units in the last place.
    """
    u, p = UNIT_ROUNDOFF, parts(t)
    K = p["k"].shape[-1]
    n = float(dot_error(K + 2, np.ones(1))[0])
    unit = n / 2 + 12 * u
    held = (t["mode"] == HOLD)[:, None, None]
    keep = np.where(held, 0.0, decay_error(t))
    kept = np.abs(p["keep"][..., None] * p["S"])
    k, q, d_parts = np.abs(p["k"]), np.abs(p["q"]), np.abs(p["v"])
    recalled = np.einsum("bnkv,bnk->bnv", kept * (keep[..., None] + unit + n + 2 * u), k) + _lost(kept, k)
    size = d_parts + np.einsum("bnkv,bnk->bnv", kept, k)
    d_error = np.where(held, 0.0, GATE_ERROR * size + p["b"] * (recalled + 3 * u * size))
    d = p["b"] * size
    S_error = kept * (keep[..., None] + 2 * u) + k[..., None] * (d_error + d * (unit + 3 * u))[:, :, None]
    written, before = k[..., None] * d[:, :, None], np.abs(p["S"])
    S_error = S_error + underflow(before, 1 + before) + underflow(written, 2 + d[:, :, None])
    after = np.abs(reference(t)["memory"]).reshape(S_error.shape)
    S_error = S_error + 2 * u * after
    o = np.einsum("bnkv,bnk->bnv", S_error + after * (unit + n + 4 * u), q) + _lost(after, q)
    # A held memory is written back as it was read.
    S_error = np.where(held[..., None], 0.0, S_error)
    return {"memory": S_error.reshape(t["memory"].shape), "o": o.reshape(t["v"].shape)}


def _lost(S: Array, x: Array) -> Array:
    """What S^T x may lose by elements of x, and by products, that fall below normal numbers."""
    return underflow(np.einsum("bnkv,bnk->bnv", S, x), x.shape[-1] + S.sum(axis=2))


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the widths, or keys are too wide."""
    R, P, V, N = (sizes[name] for name in "RPVN")
    if R % N or P != N * V or R // N > WIDEST:
        fitting = f"R = N K, P = N V, K at most {WIDEST}"
        raise ShapeError(mismatch("delta_memory", fitting, f"N = {N}, R = {R}, P = {P}, V = {V}"))
    return Launch(workgroups=(sizes["B"], N, 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Of a head: seven an element of S, eight a channel of q, k and the decay and its formula's own, five besides."""
    B, R, P, V, N = (sizes[name] for name in "BRPVN")
    return B * (7 * R * V + 2 * P + R * (8 + decay_operations(attributes)) + 5 * N) + N


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, R, P, V, N = (case.sizes[name] for name in "BRPVN")
    mode = draw_modes(rng, B)
    memory = rng.standard_normal((B, R, V)).astype(np.float32)
    memory[mode == RESTART] = np.nan
    q, k, z = (rng.standard_normal((B, R)).astype(np.float32) for _ in range(3))
    # A key of zeros must not divide by zero.
    k[-1] = 0
    return {
        "q": q,
        "k": k,
        "v": rng.standard_normal((B, P)).astype(np.float32),
        "beta": rng.standard_normal((B, N)).astype(np.float32),
        "z": (case.scale * z).astype(np.float32),
        "a": rng.uniform(-1, 1, N).astype(np.float32),
        "mode": mode,
        "memory": memory,
    }


_PLAIN, _BOUNDED = {"bounded": 0.0}, {"bounded": 1.0}

KERNEL = Kernel(
    name="delta_memory",
    shapes={
        "q": "B R",
        "k": "B R",
        "v": "B P",
        "beta": "B N",
        "z": "B R",
        "a": "N",
        "mode": "B",
        "memory": "B R V",
        "o": "B P",
    },
    outputs=("o",),
    updates=("memory",),
    attributes=("bounded",),
    reference=reference,
    bound=bound,
    why="every rounding propagated to first order; exp and log as Vulkan allows",
    launch=launch,
    tiling=lambda sizes, machine: of_columns(sizes["V"], machine),
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"B": 2, "R": 1, "P": 1, "V": 1, "N": 1}, attributes=_PLAIN),
        Case({"B": 4, "R": 63, "P": 3, "V": 1, "N": 3}, seed=1, attributes=_PLAIN),
        Case({"B": 3, "R": 64, "P": 200, "V": 100, "N": 2}, seed=2, attributes=_PLAIN),
        Case({"B": 5, "R": 257, "P": 65, "V": 65, "N": 1}, seed=3, attributes=_BOUNDED),
        Case({"B": 6, "R": 28, "P": 36, "V": 9, "N": 4}, seed=4, attributes=_BOUNDED),
        Case({"B": 3, "R": 16, "P": 16, "V": 4, "N": 4}, seed=5, scale=100, attributes=_PLAIN),
    ),
)
