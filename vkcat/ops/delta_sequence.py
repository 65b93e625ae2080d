"""All T steps of a gated delta memory in one dispatch; see `delta_memory` for the equations.

| tensor | shape | dtype |
|---|---|---|
| q, k, z | (R, C), C = N K, R = T B; row t B + b is stream b's step t | float32 |
| v, o | (R, P), P = N V | float32 |
| beta | (R, N) | float32 |
| a | (N) | float32 |
| mode | (B) | uint32: 0 hold (S stays), 1 step, 2 restart (S is zero before the first step) |
| lengths | (B) | uint32: how many of the steps are the stream's own; past them S stays; there, and held, o = 0 |
| memory | (B, C, V): each head's K rows, updated in place | float32 |

K is at most 1024. One workgroup goes through the steps of a stream's head: nothing else of a block must go in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import delta_memory
from vkcat.ops.gates import RESTART
from vkcat.ops.rows import check_rows, draw_lengths, idle, of_read, steps_of
from vkcat.tiling import Tiling


def _of_step(sizes: Sizes) -> dict[str, int]:
    """The sizes of a delta_memory, whose R are channels."""
    return {**sizes, "R": sizes["C"]}


def _steps(t: Arrays) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """What a delta_memory of each step is given, and its outputs."""
    memory = t["memory"]
    for own in steps_of(t, "q", "k", "v", "beta", "z"):
        now = {**t, **own, "memory": memory}
        made = delta_memory.reference(now)
        memory = made["memory"]
        yield now, made


def reference(t: Arrays) -> dict[str, Array]:
    steps = list(_steps(t))
    answers = [of_read(now["mode"], made["o"]) for now, made in steps]
    return {"o": np.concatenate(answers), "memory": steps[-1][1]["memory"]}


def bound(t: Arrays) -> dict[str, Array]:
    """delta_memory's of each step, and what the steps after make of it.

    A step is linear in S: its error e of a column becomes T e, T = (I - b k k^T) diag(exp g). Each element of that is
    within |T| |e|: that is close at first, but may double with every step, as signs are lost. The norm of T e is within
    the greatest exp g times that of e, as 0 <= b |k|^2 <= 1: it does not grow, and no element exceeds it. Both hold,
    so the lesser is taken. Products of two errors are left out, as in delta_memory.
    """
    each = np.zeros((len(t["mode"]), len(t["a"]), t["k"].shape[1] // len(t["a"]), t["memory"].shape[-1]))
    norm = each[:, :, :1]
    answers = []
    for now, _ in _steps(t):
        p, own = delta_memory.parts(now), delta_memory.bound(now)
        fresh = (now["mode"] == RESTART)[:, None, None, None]
        each, norm = _carried(p, np.where(fresh, 0.0, each), np.where(fresh, 0.0, norm))
        length = np.sqrt((p["q"] ** 2).sum(axis=-1))[..., None]
        answer = np.minimum(np.einsum("bnkv,bnk->bnv", each, np.abs(p["q"])), length * norm[:, :, 0])
        answers.append(of_read(now["mode"], own["o"] + answer.reshape(own["o"].shape)))
        made = own["memory"].reshape(each.shape)
        each, norm = each + made, norm + _norm(made)
    return {"o": np.concatenate(answers), "memory": each.reshape(t["memory"].shape)}


def _norm(error: Array) -> Array:
    """Of each column: (B, N, 1, V) of (B, N, K, V)."""
    return np.asarray(np.sqrt((error**2).sum(axis=2, keepdims=True)))


def _carried(p: Arrays, each: Array, norm: Array) -> tuple[Array, Array]:
    """What a step makes of an error of S, with its `parts`: of elements (B, N, K, V), and of columns (B, N, 1, V)."""
    k, kept = np.abs(p["k"]), p["keep"][..., None] * each
    recalled = p["b"] * np.einsum("bnkv,bnk->bnv", kept, k)
    # On the diagonal of T the product with k is subtracted.
    own = 2 * (p["b"] * k**2)[..., None] * kept
    norm = norm * p["keep"].max(axis=-1)[..., None, None]
    return np.minimum(kept + k[..., None] * recalled[:, :, None] - own, norm), norm


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the widths, or keys are too wide."""
    check_rows("delta_sequence", sizes)
    return delta_memory.launch(_of_step(sizes), tiling)


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Those of a delta_memory of each step."""
    return sizes["R"] // sizes["B"] * delta_memory.operations(_of_step(sizes), attributes)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B = case.sizes["R"], case.sizes["B"]
    streams, rows = (
        delta_memory.inputs(rng, replace(case, sizes={**_of_step(case.sizes), "B": count})) for count in (B, R)
    )
    mode, lengths, memory = streams["mode"], draw_lengths(rng, B, R // B), streams["memory"]
    kept = idle(mode, lengths)
    memory[kept] = rng.standard_normal(memory[kept].shape)
    return {**rows, "a": streams["a"], "mode": mode, "lengths": lengths, "memory": memory}


_PLAIN, _BOUNDED = {"bounded": 0.0}, {"bounded": 1.0}

KERNEL = Kernel(
    name="delta_sequence",
    shapes={
        "q": "R C",
        "k": "R C",
        "v": "R P",
        "beta": "R N",
        "z": "R C",
        "a": "N",
        "mode": "B",
        "lengths": "B",
        "memory": "B C V",
        "o": "R P",
    },
    outputs=("o",),
    updates=("memory",),
    attributes=("bounded",),
    reference=reference,
    bound=bound,
    why="delta_memory's of each step, which no later step makes longer",
    launch=launch,
    tiling=delta_memory.KERNEL.tiling,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"R": 1, "B": 1, "C": 1, "P": 1, "V": 1, "N": 1}, attributes=_PLAIN),
        Case({"R": 28, "B": 4, "C": 63, "P": 3, "V": 1, "N": 3}, seed=1, attributes=_PLAIN),
        Case({"R": 15, "B": 3, "C": 64, "P": 200, "V": 100, "N": 2}, seed=2, attributes=_PLAIN),
        Case({"R": 10, "B": 5, "C": 257, "P": 65, "V": 65, "N": 1}, seed=3, attributes=_BOUNDED),
        Case({"R": 126, "B": 63, "C": 28, "P": 36, "V": 9, "N": 4}, seed=4, attributes=_BOUNDED),
        Case({"R": 64, "B": 1, "C": 16, "P": 16, "V": 4, "N": 4}, seed=5, attributes=_BOUNDED),
        Case({"R": 96, "B": 3, "C": 16, "P": 16, "V": 4, "N": 4}, seed=6, scale=100, attributes=_PLAIN),
    ),
)
