"""What all contenders run: a model, a state to go on from, and what the float64 reference draws next.

A scene lies in a folder, so that contenders in other processes, and other environments, read the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vkcat
from vkcat import states
from vkcat.config import StreamConfig, to_json
from vkcat.model import build_stream
from vkcat.model.stream import StreamModel
from vkcat.presets import preset
from vkcat.states import SavedState
from vkcat.stored import StoredModel
from vkcat.weights import save_model

Array = NDArray[Any]

TOLERANCE = 2e-5
"""Greatest error of a logit, as a part of the greatest logit of its stream: float32's rounding through the layers."""

PREFIX = 8
"""Tokens that each stream has read before."""


def _gru_l3() -> Mapping[str, Any]:
    return to_json(preset("gru-l3"))


def _gru() -> Mapping[str, Any]:
    """The three layers of gru-l3 as one torch.nn.GRU, between an embedding and a head."""
    whole = dict(_gru_l3())
    layers = [block for block in whole["blocks"] if block["kind"] == "gru"]
    del whole["modulation"]
    return whole | {"name": "gru", "depth": {"kind": "plain"}, "norm": {"kind": "none"}, "blocks": layers}


def _narrow() -> Mapping[str, Any]:
    """gru-l3's graph at an eighth of its width: a step with hardly any kernel in it."""
    sizes = {"hidden": 32, "head_width": 8}
    whole = dict(_gru_l3())
    blocks = [block | {key: size for key, size in sizes.items() if key in block} for block in whole["blocks"]]
    return whole | {"name": "gru-l3-narrow", "width": 32, "blocks": blocks}


MODELS: dict[str, Callable[[], Mapping[str, Any]]] = {"gru-l3": _gru_l3, "gru-l3-narrow": _narrow, "gru": _gru}


@dataclass(frozen=True)
class Scene:
    """`batch` streams of the model named, in `folder`. A step draws a token for each stream and reads it."""

    model: str
    batch: int
    folder: Path

    @property
    def stored(self) -> StoredModel:
        return vkcat.read_model(self.folder / "model")

    @property
    def state(self) -> Path:
        return self.folder / "start.safetensors"

    def graphs(self, stored: StoredModel) -> StreamModel:
        assert isinstance(stored.config, StreamConfig)
        return build_stream(stored.config, self.batch)

    def start(self, stored: StoredModel) -> SavedState:
        """States by name, and the logits (B, V) that the first token is drawn from, in float32."""
        model = self.graphs(stored)
        outputs = (self.batch, model.width)
        return states.read(self.state, stored.identity, model.shared.kept, outputs, np.float32, model.limits)


@dataclass(frozen=True)
class Expected:
    """What the reference draws after the start: tokens (B, T), and the logits (B, V) after the last."""

    tokens: Array
    logits: Array

    def error(self, tokens: Array, logits: Array) -> float:
        """The greatest error of a logit as a part of its stream's greatest; infinite for another token."""
        if tokens.shape != self.tokens.shape or not np.array_equal(tokens, self.tokens):
            return float("inf")
        if logits.shape != self.logits.shape or not np.isfinite(logits).all():
            return float("inf")
        return float((np.abs(logits - self.logits) / _greatest(self.logits)).max())


def _greatest(logits: Array) -> Array:
    return np.asarray(np.abs(logits).max(axis=1, keepdims=True))


def make_scene(model: str, batch: int, folder: Path, steps: int) -> tuple[Scene, Expected]:
    """Write a scene. Its prefix is the first whose `steps` tokens no rounding within the tolerance can change."""
    scene = Scene(model, batch, folder)
    drawn = vkcat.initial_model(MODELS[model]())
    save_model(folder / "model", drawn.config, _without_zeros(drawn.weights))
    stored = scene.stored
    for seed in count():
        session = vkcat.Session(stored, batch=batch, device="reference")
        prefix = np.random.default_rng(seed).integers(0, session.model.width, (batch, PREFIX))
        session.prefill(prefix)
        session.save_state(scene.state)
        expected = _expected(session, steps)
        session.close()
        if expected is not None:
            return scene, expected
    raise AssertionError("there is always another seed")


def _without_zeros(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights that begin as zeros would hide an error in what they are multiplied with."""
    rng = np.random.default_rng(0)
    return {
        name: array if array.any() else (rng.uniform(-1, 1, array.shape) / np.sqrt(array.shape[-1])).astype(array.dtype)
        for name, array in weights.items()
    }


def _expected(session: vkcat.Session, steps: int) -> Expected | None:
    """None when two logits that a token was drawn from are too close to each other."""
    tokens = []
    logits = session.outputs
    for token in session.tokens(steps):
        best = np.sort(logits, axis=1)[:, -2:]
        if ((best[:, 1] - best[:, 0])[:, None] <= 4 * TOLERANCE * _greatest(logits)).any():
            return None
        tokens.append(token)
        logits = session.outputs
    return Expected(np.stack(tokens, axis=1), logits)
