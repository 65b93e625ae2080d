"""Small models of one stream for tests: every block and policy at awkward sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkcat.config import StreamConfig, parse
from vkcat.presets import initial_model
from vkcat.stored import StoredModel

GRU = {"kind": "gru", "hidden": 21}
RING = {"kind": "ring_attention", "heads": 4, "groups": 2, "head_width": 5, "window": 6}
DELTA = {"kind": "delta_memory", "heads": 2, "key": 5, "value": 7, "rank": 3}
MLP = {"kind": "mlp", "hidden": 33, "activation": "situ"}
EXPERTS = {"kind": "experts", "experts": 5, "chosen": 2, "hidden": 9, "latent": 11, "shared": 13}

NO_LIMIT_MS = 1e6
"""Of a submission, where it has to be of many steps however slow the machine is just now."""


def config(blocks: list[dict[str, Any]], depth: Any = "residual", **more: Any) -> StreamConfig:
    """A stream of width 21 over bytes; a key of None is left out."""
    value = {
        "format": "vkcat/1",
        "name": "small",
        "input": {"kind": "embedding", "symbols": "bytes"},
        "width": 21,
        "depth": depth,
        "norm": "rms",
        "blocks": blocks,
        "output": {"kind": "token"},
    }
    parsed = parse({key: given for key, given in (value | more).items() if given is not None})
    assert isinstance(parsed, StreamConfig)
    return parsed


def stored(made: StreamConfig, seed: int = 0) -> StoredModel:
    """Weights of the blocks' own kind, and random ones where those start as zeros, so that every path counts."""
    model = initial_model(made, seed)
    rng = np.random.default_rng(seed)
    weights = {
        name: array if array.any() else (0.3 * rng.standard_normal(array.shape)).astype(array.dtype)
        for name, array in model.weights.items()
    }
    return StoredModel(made, weights)


ALL = config(
    [GRU, {**GRU, "reset": "before"}, MLP, DELTA, {**DELTA, "convolution": 0, "decay": "bounded"}, EXPERTS, RING],
    {"kind": "attnres", "block": 2, "gated": True},
    modulation={"context": 6},
    patches={"rows": 2, "columns": 3, "side": 3, "channels": 1},
    features={"size": 5},
)
CONFIGS = {
    "all": ALL,
    "gru": config([GRU, GRU], "plain", norm="none"),
    "ring": config([GRU, RING, {**RING, "slopes": "none", "groups": 1}]),
    "delta": config([DELTA, {**DELTA, "decay": "bounded"}], "dwa"),
    "experts": config([GRU, EXPERTS, {**EXPERTS, "latent": 0, "scores": "softmax", "chosen": 1}], {"kind": "attnres"}),
}

SAMPLING = {"temperature": 0.8, "top_k": 40, "seed": 5}


def draw_tokens(batch: int, steps: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (batch, steps))
