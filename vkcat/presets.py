"""Configurations that ship with vkcat, and models drawn from a configuration alone."""

from __future__ import annotations

from pathlib import Path

from vkcat.config import ModelConfig, load_file
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


def initial_model(config: ModelConfig, seed: int) -> StoredModel:
    """A model whose weights are drawn from `seed`, each as its block says."""
    return StoredModel(config, initial_weights(build(config), seed))
