"""Configurations that ship with vkcat, and models drawn from a configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vkcat.arrays import whole
from vkcat.config import ModelConfig, load_file, parse
from vkcat.errors import InputError, mismatch
from vkcat.model import build, initial_weights
from vkcat.stored import StoredModel

_FOLDER = Path(__file__).parent / "configs"


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def preset(name: str) -> ModelConfig:
    """The shipped configuration `name`, or that of a .json file. Raises `InputError` or `ModelError`."""
    if name.endswith(".json"):
        return load_file(Path(name))
    if name not in names():
        raise InputError(mismatch("init", f"one of {', '.join(names())}, or a .json file", repr(name)))
    return load_file(_FOLDER / f"{name}.json")


def initial_model(config: ModelConfig | Mapping[str, Any] | str | Path, seed: int = 0) -> StoredModel:
    """A model whose weights are drawn from `seed`, each as its block says.

    `config` may be what a `config.json` holds, or what `preset` takes. Raises `InputError` or `ModelError`.
    """
    if whole("seed", seed) < 0:
        raise InputError(mismatch("seed", "at least 0", seed))
    if isinstance(config, (str, Path)):
        config = preset(str(config))
    elif isinstance(config, Mapping):
        config = parse(config, "configuration")
    return StoredModel(config, initial_weights(build(config), seed))
