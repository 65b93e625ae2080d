"""Blocks as graphs. Adding one is its module here, its sizes in vkcat/config/blocks.py, and its line below."""

from collections.abc import Callable
from typing import Any

from vkcat.blocks.delta_memory import delta_memory
from vkcat.blocks.depth import depth_mixer
from vkcat.blocks.experts import experts
from vkcat.blocks.gru import GruWeights, gru, gru_block, gru_rows
from vkcat.blocks.mlp import mlp
from vkcat.blocks.ring_attention import ring_attention
from vkcat.blocks.scope import Scope, Shared
from vkcat.config import DeltaMemoryBlock, ExpertsBlock, GruBlock, MlpBlock, RingAttentionBlock
from vkcat.graph import Tensor

BLOCKS: dict[type, Callable[[Scope, str, Any, Tensor], Tensor]] = {
    GruBlock: gru_block,
    RingAttentionBlock: ring_attention,
    DeltaMemoryBlock: delta_memory,
    MlpBlock: mlp,
    ExpertsBlock: experts,
}

__all__ = ["BLOCKS", "GruWeights", "Scope", "Shared", "depth_mixer", "gru", "gru_block", "gru_rows"]
