"""Cases for torch, with weights both sides make from the same numbers. No vkcat and no torch in here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Case:
    """A torch.nn.GRU with its input: T steps, B sequences, I inputs, H hidden units, L layers."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    both: bool
    lengths: bool = False
    h0: bool = True

    @property
    def name(self) -> str:
        marks = ("-both" if self.both else "") + ("-lengths" if self.lengths else "") + ("" if self.h0 else "-zero")
        return f"T{self.steps}-B{self.batch}-I{self.inputs}-H{self.hidden}-L{self.layers}{marks}"


CASES = (
    Case(1, 1, 1, 1, 1, both=False),
    Case(7, 3, 3, 1, 2, both=True),
    Case(5, 2, 100, 63, 1, both=False, h0=False),
    Case(9, 5, 63, 100, 2, both=False, lengths=True),
    Case(8, 4, 1, 257, 1, both=True, lengths=True),
    Case(6, 3, 257, 65, 3, both=True, lengths=True),
    Case(12, 1, 64, 64, 4, both=False),
    Case(5, 3, 300, 300, 1, both=True),
    Case(4, 2, 300, 128, 4, both=True, h0=False),
    Case(40, 2, 17, 96, 3, both=False, lengths=True),
)


@dataclass(frozen=True)
class Arrays:
    x: NDArray[np.float32]
    h0: NDArray[np.float32]
    lengths: NDArray[np.int64]
    w_ih: list[NDArray[np.float32]]
    w_hh: list[NDArray[np.float32]]
    b_ih: list[NDArray[np.float32]]
    b_hh: list[NDArray[np.float32]]


def arrays(case: Case) -> Arrays:
    """Numbers that depend on the case alone: RandomState's streams are frozen across NumPy's versions."""
    rng = np.random.RandomState(sum(ord(c) * (i + 1) for i, c in enumerate(case.name)))
    directions = 2 if case.both else 1
    bound = 1 / np.sqrt(case.hidden)

    def uniform(*shape: int) -> NDArray[np.float32]:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    rows = 3 * case.hidden
    cells = [
        (uniform(rows, case.inputs if layer == 0 else directions * case.hidden), uniform(rows, case.hidden))
        for layer in range(case.layers)
        for _ in range(directions)
    ]
    biases = [(uniform(rows), uniform(rows)) for _ in cells]
    x = rng.uniform(-2, 2, (case.steps, case.batch, case.inputs)).astype(np.float32)
    h0 = rng.uniform(-1, 1, (len(cells), case.batch, case.hidden)).astype(np.float32)
    lengths = rng.randint(1, case.steps + 1, case.batch) if case.lengths else np.full(case.batch, case.steps)
    lengths[0] = case.steps
    return Arrays(
        x=x,
        h0=h0 if case.h0 else np.zeros_like(h0),
        lengths=lengths.astype(np.int64),
        w_ih=[w for w, _ in cells],
        w_hh=[w for _, w in cells],
        b_ih=[b for b, _ in biases],
        b_hh=[b for _, b in biases],
    )


@dataclass(frozen=True)
class RingCase:
    """Causal attention under a band of width W: T steps, B streams, N heads of width d over G key and value heads."""

    steps: int
    batch: int
    window: int
    heads: int
    groups: int
    width: int
    alibi: bool

    @property
    def name(self) -> str:
        sizes = f"T{self.steps}-B{self.batch}-W{self.window}-N{self.heads}-G{self.groups}-d{self.width}"
        return f"ring-{sizes}{'-alibi' if self.alibi else ''}"


RING_CASES = (
    RingCase(1, 1, 1, 1, 1, 1, alibi=False),
    RingCase(20, 2, 8, 4, 2, 16, alibi=True),
    RingCase(17, 3, 5, 6, 1, 7, alibi=False),
    RingCase(150, 1, 70, 2, 2, 33, alibi=True),
    RingCase(9, 2, 64, 3, 3, 64, alibi=True),
)


def ring_arrays(case: RingCase) -> dict[str, NDArray[np.float32]]:
    """q (T, B, N d), k and v (T, B, G d), slopes (N)."""
    rng = np.random.RandomState(case.steps * 1000 + case.heads * 10 + case.width)
    N, G, d = case.heads, case.groups, case.width
    arrays = {
        name: rng.standard_normal((case.steps, case.batch, heads * d)) for name, heads in (("q", N), ("k", G), ("v", G))
    }
    arrays["slopes"] = 2.0 ** (-8.0 * np.arange(1, N + 1) / N) if case.alibi else np.zeros(N)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


NORM_SHAPES = ((1, 1), (3, 63), (2, 4096), (5, 257))


def norm_arrays(shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """x (B, D) and gain (D)."""
    rng = np.random.RandomState(shape[0] * 10000 + shape[1])
    return (30 * rng.standard_normal(shape)).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)


@dataclass(frozen=True)
class DeltaCase:
    """Kimi delta attention with its short convolutions: T steps, B streams, N heads, K key and V value channels."""

    steps: int
    batch: int
    heads: int
    key: int
    value: int

    @property
    def name(self) -> str:
        return f"delta-T{self.steps}-B{self.batch}-N{self.heads}-K{self.key}-V{self.value}"


DELTA_CASES = (
    DeltaCase(1, 1, 1, 4, 4),
    DeltaCase(70, 2, 2, 16, 16),
    DeltaCase(40, 3, 3, 7, 12),
    DeltaCase(9, 1, 2, 65, 33),
)


def delta_arrays(case: DeltaCase) -> dict[str, NDArray[np.float32]]:
    """q, k, z (T, B, N K), v, gate (T, B, N V), beta (T, B, N), a (N), gain (V), w_q, w_k (N K, 4), w_v (N V, 4)."""
    rng = np.random.RandomState(case.steps * 1000 + case.key)
    N, R, P = case.heads, case.heads * case.key, case.heads * case.value
    widths = {"q": R, "k": R, "z": R, "v": P, "gate": P, "beta": N}
    arrays = {name: rng.standard_normal((case.steps, case.batch, width)) for name, width in widths.items()}
    arrays |= {"a": rng.uniform(-1, 1, N), "gain": rng.standard_normal(case.value)}
    arrays |= {f"w_{name}": rng.standard_normal((width, 4)) for name, width in (("q", R), ("k", R), ("v", P))}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


@dataclass(frozen=True)
class MoeCase:
    """Routed experts: B tokens of width D, E experts of hidden width M, S chosen, by softmax or biased sigmoid."""

    batch: int
    width: int
    experts: int
    hidden: int
    chosen: int
    softmax: bool

    @property
    def name(self) -> str:
        sizes = f"B{self.batch}-D{self.width}-E{self.experts}-M{self.hidden}-S{self.chosen}"
        return f"moe-{sizes}-{'softmax' if self.softmax else 'sigmoid'}"


MOE_CASES = (
    MoeCase(5, 32, 8, 48, 2, softmax=True),
    MoeCase(3, 63, 5, 100, 3, softmax=True),
    MoeCase(4, 32, 8, 48, 2, softmax=False),
    MoeCase(3, 65, 16, 33, 4, softmax=False),
)


def moe_arrays(case: MoeCase) -> dict[str, NDArray[np.float32]]:
    """x (B, D), router (E, D), bias (E), w_in (E, 2M, D), w_out (E, D, M)."""
    rng = np.random.RandomState(case.width * 100 + case.experts)
    B, D, E, M = case.batch, case.width, case.experts, case.hidden
    arrays = {
        "x": rng.standard_normal((B, D)),
        "router": rng.standard_normal((E, D)),
        "bias": np.zeros(E) if case.softmax else rng.standard_normal(E),
        "w_in": rng.standard_normal((E, 2 * M, D)) / np.sqrt(D),
        "w_out": rng.standard_normal((E, D, M)) / np.sqrt(M),
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


@dataclass(frozen=True)
class ImportCase:
    """nn.Embedding, nn.GRU, nn.Linear in a row: T steps, B sequences, V symbols (0: features), O outputs (0: none)."""

    steps: int
    batch: int
    symbols: int
    inputs: int
    hidden: int
    layers: int
    both: bool
    outputs: int
    bias: bool = True

    @property
    def name(self) -> str:
        sizes = f"T{self.steps}-B{self.batch}-V{self.symbols}-I{self.inputs}-H{self.hidden}-L{self.layers}"
        marks = ("-both" if self.both else "") + ("" if self.bias else "-nobias")
        return f"import-{sizes}-O{self.outputs}{marks}"


IMPORT_CASES = (
    ImportCase(6, 2, 11, 5, 7, 1, both=False, outputs=11),
    ImportCase(5, 3, 0, 3, 1, 2, both=True, outputs=0),
    ImportCase(9, 2, 256, 33, 65, 3, both=True, outputs=5),
    ImportCase(4, 1, 0, 63, 31, 3, both=False, outputs=9, bias=False),
    ImportCase(7, 2, 13, 17, 9, 2, both=True, outputs=0, bias=False),
)


def import_state_dict(case: ImportCase) -> dict[str, NDArray[np.float32]]:
    """Parameters by torch's names, in modules `emb`, `rnn.gru` and `head`."""
    rng = np.random.RandomState(case.inputs * 1000 + case.hidden)
    directions, rows = (2 if case.both else 1), 3 * case.hidden
    shapes: dict[str, tuple[int, ...]] = {"emb.weight": (case.symbols, case.inputs)} if case.symbols else {}
    for layer in range(case.layers):
        for end in (f"l{layer}", f"l{layer}_reverse")[:directions]:
            shapes[f"rnn.gru.weight_ih_{end}"] = (rows, case.inputs if layer == 0 else directions * case.hidden)
            shapes[f"rnn.gru.weight_hh_{end}"] = (rows, case.hidden)
            if case.bias:
                shapes |= {f"rnn.gru.bias_ih_{end}": (rows,), f"rnn.gru.bias_hh_{end}": (rows,)}
    if case.outputs:
        shapes["head.weight"] = (case.outputs, directions * case.hidden)
        if case.bias:
            shapes["head.bias"] = (case.outputs,)
    bounds = {name: 1.0 if name == "emb.weight" else case.hidden**-0.5 for name in shapes}
    return {name: rng.uniform(-bounds[name], bounds[name], shapes[name]).astype(np.float32) for name in shapes}


def import_input(case: ImportCase) -> NDArray[np.int64] | NDArray[np.float32]:
    """Tokens (B, T) or features (B, T, I)."""
    rng = np.random.RandomState(case.steps * 1000 + case.inputs)
    if case.symbols:
        return rng.randint(0, case.symbols, (case.batch, case.steps)).astype(np.int64)
    return rng.uniform(-2, 2, (case.batch, case.steps, case.inputs)).astype(np.float32)


@dataclass(frozen=True)
class PatchCase:
    """An image of R by C patches of S by S pixels of N channels, for D channels of the stream."""

    rows: int
    columns: int
    side: int
    channels: int
    width: int

    @property
    def name(self) -> str:
        return f"patches-R{self.rows}-C{self.columns}-S{self.side}-N{self.channels}-D{self.width}"


PATCH_CASES = (PatchCase(1, 1, 1, 1, 1), PatchCase(2, 3, 3, 1, 63), PatchCase(3, 2, 4, 3, 100))


def patch_arrays(case: PatchCase) -> dict[str, NDArray[np.float32]]:
    """image (R S, C S, N), w (D, S, S, N), bias (D), places (R C, D)."""
    rng = np.random.RandomState(case.width)
    shapes = {
        "image": (case.rows * case.side, case.columns * case.side, case.channels),
        "w": (case.width, case.side, case.side, case.channels),
        "bias": (case.width,),
        "places": (case.rows * case.columns, case.width),
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


MLP_SHAPES = ((1, 1, 1), (3, 63, 100), (5, 100, 257))


def mlp_arrays(shape: tuple[int, int, int]) -> dict[str, NDArray[np.float32]]:
    """x (B, D), w_in (2M, D): gate, then up; w_out (D, M)."""
    B, D, M = shape
    rng = np.random.RandomState(B * 1000 + D)
    shapes = {"x": (B, D), "w_in": (2 * M, D), "w_out": (D, M)}
    scales = {"x": 1.0, "w_in": D**-0.5, "w_out": M**-0.5}
    return {name: (scales[name] * rng.standard_normal(size)).astype(np.float32) for name, size in shapes.items()}
