"""From a configuration to graphs: `encode` reads one token a stream, `decode` writes one.

Both share the states of their GRU blocks, so the decoder goes on where the encoder ended. The decoder's chosen token is
carried on the device to its next step's embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

from vkcat.blocks import GruWeights, gru
from vkcat.config import GruBlock, ModelConfig, Stack
from vkcat.errors import InputError, mismatch
from vkcat.graph import Graph, Role, Tensor


@dataclass(frozen=True)
class Model:
    """Graphs of a model for a batch of B streams, and the tensors that the host sets or reads.

    `weights` are by their name in `model.safetensors`. `ids`, `encode_mode`, `decode_mode` are (B) uint32 inputs,
    `token` the (B) uint32 state that decoding starts from, `chosen` the (B) uint32 output of a decoding step.
    """

    config: ModelConfig
    batch: int
    encode: Graph
    decode: Graph
    weights: dict[str, Tensor]
    ids: Tensor
    encode_mode: Tensor
    token: Tensor
    decode_mode: Tensor
    chosen: Tensor

    @property
    def graphs(self) -> tuple[Graph, Graph]:
        return self.encode, self.decode


def build(config: ModelConfig, batch: int = 1) -> Model:
    """The graphs of `config` for `batch` streams side by side. Raises `InputError` unless there is at least one."""
    if not isinstance(batch, int) or batch < 1:
        raise InputError(mismatch("batch", "an integer of at least 1", repr(batch)))
    weights = Weights()
    states = [
        Tensor(f"blocks.{at}.h", (batch, block.hidden), "float32", Role.STATE)
        for at, block in enumerate(config.encoder.blocks)
    ]
    ids = Tensor("ids", (batch,), "uint32", Role.INPUT)
    token = Tensor("token", (batch,), "uint32", Role.STATE)
    encode, encode_mode, _ = _stack(config.encoder, "encoder", ids, states, weights)
    decode, decode_mode, h = _stack(config.decoder, "decoder", token, states, weights)
    symbols = len(config.decoder.input.symbols)
    w = weights.add("decoder.output.weight", symbols, config.decoder.blocks[-1].hidden)
    bias = weights.add("decoder.output.bias", symbols)
    (logits,) = decode.add("linear", "decoder.output", x=h, w=w, bias=bias)
    (chosen,) = decode.add("argmax", "decoder.token", x=logits)
    decode.carry(token, chosen)
    decode.output(chosen)
    return Model(config, batch, encode, decode, weights.by_name, ids, encode_mode, token, decode_mode, chosen)


class Weights:
    """Weight tensors by name, in the order a model uses them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tensor] = {}

    def add(self, name: str, *shape: int) -> Tensor:
        self.by_name[name] = Tensor(name, shape, "float32", Role.WEIGHT)
        return self.by_name[name]


def _stack(
    stack: Stack, name: str, ids: Tensor, states: list[Tensor], weights: Weights
) -> tuple[Graph, Tensor, Tensor]:
    """The graph of a stack up to its last block, its mode input, and the last block's output."""
    graph = Graph({"encoder": "encode", "decoder": "decode"}[name])
    mode = Tensor(f"{name}.mode", ids.shape, "uint32", Role.INPUT)
    table = weights.add(f"{name}.input.weight", len(stack.input.symbols), stack.width)
    (x,) = graph.add("embedding", f"{name}.input", ids=ids, table=table)
    for at, (block, h) in enumerate(zip(stack.blocks, states, strict=True)):
        block_name = f"{name}.blocks.{at}"
        x = gru(graph, block_name, x, h, mode, _gru_weights(block, block_name, x.shape[-1], weights), block.reset)
    return graph, mode, x


def _gru_weights(block: GruBlock, name: str, width: int, weights: Weights) -> GruWeights:
    rows = 3 * block.hidden
    return GruWeights(
        w_ih=weights.add(f"{name}.weight_ih", rows, width),
        w_hh=weights.add(f"{name}.weight_hh", rows, block.hidden),
        b_ih=weights.add(f"{name}.bias_ih", rows),
        b_hh=weights.add(f"{name}.bias_hh", rows),
    )
