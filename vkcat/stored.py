"""A model as its folder holds it: configuration and weights, checked against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.config import ModelConfig, load_config, to_json
from vkcat.model import build
from vkcat.weights import load_weights


class StoredModel(Struct, frozen=True, dict=True):
    """Weights are by their name in `model.safetensors`."""

    config: ModelConfig
    weights: Mapping[str, NDArray[Any]]

    @property
    def described(self) -> str:
        """Name, tensors and parameters, in a line."""
        values = sum(array.size for array in self.weights.values())
        return f"{self.config.name}, {len(self.weights)} tensors, {values:,} parameters"

    @cached_property
    def identity(self) -> str:
        """The name, with a digest of configuration and weights: what a saved state belongs to."""
        digest = hashlib.blake2b(json.dumps(to_json(self.config), sort_keys=True).encode(), digest_size=16)
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.weights[name]).data)
        return f"{self.config.name} {digest.hexdigest()}"


def read_model(folder: str | Path) -> StoredModel:
    """Read a model folder. Raises `ModelError`."""
    config = load_config(Path(folder))
    return StoredModel(config, load_weights(Path(folder), build(config).weights))
