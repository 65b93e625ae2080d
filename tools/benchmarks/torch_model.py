"""The model in torch, as one writes it there: nn.Embedding, nn.GRU, nn.RMSNorm, nn.Linear, and scaled dot products.

Layers without anything between them are one nn.GRU. On CUDA that is cuDNN's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.contender import Settings
from benchmarks.scene import Scene
from vkcat.blocks.ring_attention import alibi
from vkcat.config import GruBlock, ResidualDepth, RingAttentionBlock, RmsNorm, Stack, StreamConfig
from vkcat.errors import DeviceError, ModelError, mismatch
from vkcat.states import SavedState

Array = NDArray[Any]
Weights = Mapping[str, Tensor]


class Layers(nn.Module):
    """Neighbouring GRU blocks as one nn.GRU. State: (layers, B, H)."""

    def __init__(self, first: int, blocks: list[GruBlock], width: int, weights: Weights, start: Mapping[str, Tensor]):
        super().__init__()
        self.gru = nn.GRU(width, blocks[0].hidden, len(blocks))
        for layer in range(len(blocks)):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(self.gru, f"{kind}_l{layer}").data = weights[f"blocks.{first + layer}.{kind}"]
        self.h = torch.stack([start[f"blocks.{first + layer}.h"] for layer in range(len(blocks))])

    def forward(self, x: Tensor) -> Tensor:
        y, self.h = self.gru(x[None], self.h)
        return y[0]


class RingAttention(nn.Module):
    """Attention over the last W steps. State: keys and values (B, W, G, d), and the count of steps."""

    def __init__(self, at: int, block: RingAttentionBlock, weights: Weights, start: Mapping[str, Tensor]) -> None:
        super().__init__()
        name = f"blocks.{at}"
        self.q, self.k, self.v, self.o = (_linear(weights[f"{name}.{part}.weight"]) for part in "qkvo")
        self.sizes = (block.heads, block.groups, block.head_width)
        self.window = block.window
        device = weights[f"{name}.q.weight"].device
        slopes = alibi(block.heads) if block.slopes == "alibi" else np.zeros(block.heads, np.float32)
        self.slopes = torch.from_numpy(slopes).to(device)[:, None, None]
        self.slots = torch.arange(block.window, device=device)
        shape = (-1, block.window, block.groups, block.head_width)
        self.keys = start[f"{name}.k_ring"].reshape(shape).clone()
        self.values = start[f"{name}.v_ring"].reshape(shape).clone()
        # All streams are equally far.
        self.count = int(start[f"{name}.t"][0])

    def forward(self, x: Tensor) -> Tensor:
        heads, groups, width = self.sizes
        at = self.count % self.window
        self.keys[:, at] = self.k(x).view(-1, groups, width)
        self.values[:, at] = self.v(x).view(-1, groups, width)
        ages = (at - self.slots) % self.window
        bias = (-self.slopes * ages).masked_fill(ages > self.count, float("-inf"))
        self.count += 1
        q = self.q(x).view(-1, heads, 1, width)
        keys, values = self.keys.transpose(1, 2), self.values.transpose(1, 2)
        o = scaled_dot_product_attention(q, keys, values, attn_mask=bias, enable_gqa=True)
        return self.o(o.reshape(len(x), -1))


class Model(nn.Module):
    """A step: a token ids (B) in, logits (B, V) out. Raises `ModelError` for a stack with other parts."""

    def __init__(self, stack: Stack, weights: Weights, start: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(weights["input.weight"])
        self.residual = isinstance(stack.depth, ResidualDepth)
        self.blocks = nn.ModuleList()
        self.norms = nn.ModuleList()
        plain = not self.residual and not isinstance(stack.norm, RmsNorm)
        for first, blocks in _runs(stack, plain):
            if isinstance(blocks[0], RingAttentionBlock):
                self.blocks.append(RingAttention(first, blocks[0], weights, start))
            else:
                self.blocks.append(Layers(first, blocks, stack.width, weights, start))
            self.norms.append(_norm(stack, weights, f"norms.{first}.weight"))
        self.norm = _norm(stack, weights, "norm.weight")
        self.context = None if stack.modulation is None else stack.modulation.context
        self.modulation = None if stack.modulation is None else _linear(weights["modulation.weight"])
        self.output = _linear(weights["output.weight"], weights["output.bias"])

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embedding(ids)
        made = []
        for norm, block in zip(self.norms, self.blocks, strict=True):
            made.append(block(norm(h)))
            h = h + made[-1] if self.residual else made[-1]
        h = self.norm(h)
        if self.modulation is not None:
            assert self.context is not None
            gamma, beta = self.modulation(made[self.context]).chunk(2, dim=-1)
            h = h * (1 + gamma) + beta
        logits: Tensor = self.output(h)
        return logits


def _runs(stack: Stack, plain: bool) -> list[tuple[int, list[Any]]]:
    """Blocks by the number of the first: GRUs together where nothing stands between them."""
    runs: list[tuple[int, list[Any]]] = []
    for at, block in enumerate(stack.blocks):
        if not isinstance(block, (GruBlock, RingAttentionBlock)):
            raise ModelError(mismatch("torch: block", "gru or ring_attention", block.kind))
        if plain and runs and isinstance(block, GruBlock) and runs[-1][1][-1] == block:
            runs[-1][1].append(block)
        else:
            runs.append((at, [block]))
    return runs


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data = weight
    if bias is not None:
        made.bias.data = bias
    return made


def _norm(stack: Stack, weights: Weights, name: str) -> nn.Module:
    if not isinstance(stack.norm, RmsNorm):
        return nn.Identity()
    made = nn.RMSNorm(weights[name].shape[0], eps=stack.norm.eps)
    made.weight.data = weights[name]
    return made


class TorchContender:
    """See `benchmarks.contender.Contender`."""

    notes: list[str] = []

    def __init__(self, scene: Scene, settings: Settings, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise DeviceError(mismatch("torch", "a CUDA device", "none"))
        torch.set_num_threads(settings.library_threads)
        torch.set_grad_enabled(False)
        self._device = torch.device(device)
        stored = scene.stored
        assert isinstance(stored.config, StreamConfig)
        start: SavedState = scene.start(stored)
        kept = {name: self._moved(array) for name, array in start.kept.items()}
        weights = {name: self._moved(array) for name, array in stored.weights.items()}
        self._model = Model(stored.config.stack, weights, kept).to(self._device).eval()
        self._logits = self._moved(start.outputs)

    def _moved(self, array: Array) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)

    @property
    def versions(self) -> Mapping[str, str]:
        found = {"torch": torch.__version__}
        if self._device.type == "cuda":
            found |= {"device": torch.cuda.get_device_name(), "cudnn": str(torch.backends.cudnn.version())}
        return found

    def generate(self, count: int) -> Array:
        tokens = []
        for _ in range(count):
            ids = self._logits.argmax(dim=-1)
            self._logits = self._model(ids)
            tokens.append(ids.cpu().numpy())
        return np.asarray(np.stack(tokens, axis=1), np.uint32)

    def logits(self) -> Array:
        return np.asarray(self._logits.cpu().numpy())

    def device_ns(self, count: int) -> None:
        del count

    def close(self) -> None:
        """torch releases what nothing refers to."""


def open_contender(scene: Scene, settings: Settings, *, device: str) -> TorchContender:
    return TorchContender(scene, settings, device)
