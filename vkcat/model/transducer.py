"""Encoder and decoder: `encode` reads one token a stream, `decode` writes one.

Both share the states of their GRU blocks, so the decoder goes on where the encoder ended. The decoder's chosen token is
carried on the device to its next step's embedding.
"""

from __future__ import annotations

from vkcat.blocks import Shared
from vkcat.blocks.scope import fan_in
from vkcat.config import TransducerConfig
from vkcat.graph import Graph, Role, Tensor
from vkcat.model.interface import Model, mode_input
from vkcat.model.stack import embed, run_stack, scope_of


class TransducerModel(Model, frozen=True):
    """`ids` (B) is the uint32 input of encoding, `token` (B) the uint32 state that decoding starts from, `chosen` (B)
    the uint32 output of a decoding step."""

    config: TransducerConfig
    ids: Tensor
    token: Tensor
    chosen: Tensor


def build_transducer(config: TransducerConfig, batch: int = 1) -> TransducerModel:
    """The graphs of `config` for `batch` streams side by side. Raises `InputError` unless there is at least one."""
    mode = mode_input(batch)
    shared = Shared(batch, config.dtype)
    ids = Tensor("ids", (batch,), "uint32", Role.INPUT)
    token = Tensor("token", (batch,), "uint32", Role.STATE)
    encode, decode = Graph("encode", config.dtype), Graph("decode", config.dtype)
    reading = scope_of(encode, mode, shared, config.encoder)
    run_stack(reading, "encoder.", config.encoder, embed(reading, "encoder.", config.encoder, ids))
    writing = scope_of(decode, mode, shared, config.decoder)
    h = run_stack(writing, "decoder.", config.decoder, embed(writing, "decoder.", config.decoder, token))
    _, written = config.symbols
    logits = writing.linear("decoder.output", h, len(written), bias=fan_in(h.shape[-1]))
    (chosen,) = decode.add("argmax", "decoder.token", x=logits)
    decode.carry(token, chosen)
    decode.output(chosen)
    return TransducerModel(
        batch=batch,
        graphs={"encode": encode, "decode": decode},
        shared=shared,
        mode=mode,
        feeds={"encode": (ids, mode), "decode": ()},
        results={"decode": (chosen,)},
        limits={ids: len(config.symbols[0]), token: len(written)},
        starts=(token,),
        config=config,
        ids=ids,
        token=token,
        chosen=chosen,
    )
