"""Whole sequences on a device: of arrays without a model folder, and of models that need them."""

from vkcat.sequences.gru import GruOutput, gru
from vkcat.sequences.model import Sequences

__all__ = ["GruOutput", "Sequences", "gru"]
