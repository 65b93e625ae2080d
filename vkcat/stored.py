"""A model as its folder holds it: configuration and weights, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vkcat.config import ModelConfig, load_config
from vkcat.model import build
from vkcat.weights import load_weights


@dataclass(frozen=True)
class StoredModel:
    """Weights are by their name in `model.safetensors`."""

    config: ModelConfig
    weights: Mapping[str, NDArray[Any]]


def read_model(folder: str | Path) -> StoredModel:
    """Read a model folder. Raises `ModelError`."""
    config = load_config(Path(folder))
    return StoredModel(config, load_weights(Path(folder), build(config).weights))
