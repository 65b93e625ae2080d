"""The next token of each stream, and its row of the embedding's table: sample and embedding. A fused op.

| tensor | shape | dtype |
|---|---|---|
| logits to history | see vkcat/ops/sample.py | |
| table | (V, D) | float32 |
| y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import embedding, sample

PARTS = (Part(sample.KERNEL), Part(embedding.KERNEL, {"ids": "token"}))

_KEPT = sample.KERNEL.updates


def bound(t: Arrays) -> dict[str, Array]:
    return sample.bound(t) | {"y": np.zeros((len(t["token"]), t["table"].shape[1]))}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    table = rng.standard_normal((case.sizes["V"], case.sizes["D"])).astype(np.float32)
    return sample.inputs(rng, case) | {"table": table}


SHAPES = {
    **{name: shape for name, shape in sample.KERNEL.shapes.items() if name not in _KEPT},
    "table": "V D",
    **{name: sample.KERNEL.shapes[name] for name in _KEPT},
    "y": "B D",
}

KERNEL = Kernel(
    name="sample_embedding",
    shapes=SHAPES,
    outputs=("y",),
    updates=_KEPT,
    reference=composed(PARTS, (*_KEPT, "y")),
    bound=bound,
    why="an index and a copy are exact",
    launch=sample.launch,
    tiling=sample.KERNEL.tiling,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    packed=("table",),
    moved=lambda sizes, attributes: {"history": sizes["B"], "table": sizes["B"] * sizes["D"]},
    parts=PARTS,
    cases=(
        Case({"B": 2, "V": 1, "M": 1, "D": 1}),
        Case({"B": 42, "V": 3, "M": 4, "D": 63}, seed=1),
        Case({"B": 63, "V": 100, "M": 2, "D": 257}, seed=2),
        Case({"B": 5, "V": 257, "M": 128, "D": 100}, seed=3),
    ),
)
