"""Damage behind a format's first checks: lengths, checksums and frames are made right again after it."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import warnings
import zipfile
import zlib
from random import Random
from typing import Any

from fuzzing.damage import INTEGERS, TEXTS, Pairs, encoded, of_bytes, of_tree
from fuzzing.damage import value as changed

CACHE_HEAD = struct.Struct("<8sIIII16s32sQ")
"""Of vkcat/device/vulkan/cache_file.py."""


def of_safetensors(data: bytes, rng: Random) -> bytes:
    """The header as JSON, with its length; sometimes the tensors' bytes grow to what it says."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end], object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return of_bytes(data, rng)
    if rng.random() < 0.15:
        return data[:end] + of_bytes(data[end:], rng)
    made = encoded(of_tree(header, rng))
    body = data[end:]
    if rng.random() < 0.3:
        body = body[: rng.randrange(len(body) + 1)] if rng.random() < 0.5 else body + bytes(rng.choice((1, 4, 64)))
    return len(made).to_bytes(8, "little") + made + body


def of_words(data: bytes, rng: Random) -> bytes:
    """SPIR-V: instructions before the first function, where what is declared lies, as whole words."""
    words = list(struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4]))
    starts, at = [], 5
    while at < len(words) and words[at] >> 16 and words[at] & 0xFFFF != 54:
        starts.append(at)
        at += words[at] >> 16
    if not starts or rng.random() < 0.1:
        return of_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        begin = rng.choice(starts)
        count = max(words[begin] >> 16, 1) if begin < len(words) else 1
        match rng.randrange(6):
            case 0:
                words[begin : begin + count] = []
            case 1:
                words[begin:begin] = words[begin : begin + count]
            case 2:
                other = rng.choice(starts)
                words[begin:begin] = words[other : other + max(words[other] >> 16, 1)] if other < len(words) else []
            case 3 if begin < len(words):
                words[begin] = words[begin] & 0xFFFF0000 | rng.choice((*range(80), 331, 332))
            case _ if begin + count <= len(words):
                place = begin + rng.randrange(count)
                words[place] = rng.choice((rng.choice(INTEGERS) % (1 << 32), rng.choice(words), words[place] + 1))
    return struct.pack(f"<{len(words)}I", *(word % (1 << 32) for word in words))


def of_protobuf(data: bytes, rng: Random) -> bytes:
    """An ONNX model by its fields."""
    import onnx

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    # protobuf's DecodeError has no public name.
    except Exception:
        return of_bytes(data, rng)
    if rng.random() < 0.1:
        return of_bytes(data, rng)
    try:
        for _ in range(rng.choice((1, 1, 2, 3))):
            _change_message(rng.choice(_messages(model)), rng)
        made: bytes = model.SerializeToString()
    except UnicodeDecodeError:
        # Of a text that damage to the bytes had made none.
        return of_bytes(data, rng)
    return made


def _messages(message: Any) -> list[Any]:
    found, pending = [], [message]
    while pending:
        one = pending.pop()
        found.append(one)
        for field, held in one.ListFields():
            if field.message_type is not None:
                pending += held if hasattr(held, "add") else [held]
    return found


def _change_message(message: Any, rng: Random) -> None:
    fields = [field for field, _ in message.ListFields()] if rng.random() < 0.85 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = rng.choice(fields)
    held = getattr(message, field.name)
    if hasattr(held, "extend"):
        _change_repeated(held, field, rng)
    elif field.message_type is not None:
        held.SetInParent() if rng.random() < 0.5 else message.ClearField(field.name)
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        _set(lambda new: setattr(message, field.name, new), held, rng)


def _change_repeated(held: Any, field: Any, rng: Random) -> None:
    at = rng.randrange(len(held)) if len(held) else 0
    action = rng.randrange(4)
    if action == 0 and len(held):
        del held[at]
    elif field.message_type is not None:
        if action == 1 and len(held):
            held.add().CopyFrom(held[at])
        elif action == 2 and len(held) > 1:
            held[at].CopyFrom(held[rng.randrange(len(held))])
        else:
            held.add()
    elif len(held) and action < 3:
        _set(lambda new: held.__setitem__(at, new), held[at], rng)
    elif len(held):
        held.append(held[at])


def _set(setter: Any, old: Any, rng: Random) -> None:
    """A value that the field takes; enumerations and widths refuse some."""
    new: Any = changed(old, rng) if type(old) is int else old
    if isinstance(old, float):
        new = rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    elif isinstance(old, bytes):
        new = of_bytes(old, rng)
    elif isinstance(old, str):
        new = rng.choice((*TEXTS[:4], "Concat", "Reshape", "Transpose", "Slice", "Cast", "GRU", "x", old + "x"))
    try:
        setter(new)
    except (ValueError, TypeError, UnicodeError):
        return


def of_npy(data: bytes, rng: Random) -> bytes:
    """The header's text, with its length; sometimes the numbers."""
    begin = 10 if data[6:7] == b"\x01" else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if rng.random() < 0.2 or end > len(data):
        return of_bytes(data, rng)
    text = data[begin:end].decode("latin-1")
    swaps = [("(", "(" + rng.choice(("0,", "65536,65536,", "4294967296,4294967296,", "-1,", "9" * 5000 + ",", "1,")))]
    swaps += [("<f", f"{rng.choice('<>|=')}{rng.choice('fiuOVSUcbmM')}"), ("4'", f"{rng.choice((0, 1, 2, 8, 16))}'")]
    swaps += [("False", "True"), ("descr", "__class__"), ("'<f4'", "[('a','<f4')]"), ("}", "}" * 300), ("(", "(" * 300)]
    old, new = rng.choice(swaps)
    made = text.replace(old, new, 1).encode("latin-1")
    if rng.random() < 0.3:
        made = of_bytes(made, rng)
    return data[:8] + (len(made) % (1 << 8 * (begin - 8))).to_bytes(begin - 8, "little") + made + data[end:]


def of_npz(data: bytes, rng: Random) -> bytes:
    """The archive's members and how they are packed; sometimes its bytes."""
    if rng.random() < 0.4:
        return of_bytes(data, rng)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    # As damaged as a reader may find it.
    except Exception:
        return of_bytes(data, rng)
    at = rng.randrange(len(members)) if members else 0
    if members:
        name, body = members[at]
        members[at] = (rng.choice((name, name, name, *TEXTS[:4])) or "x", of_npy(body, rng))
        if rng.random() < 0.2:
            del members[rng.randrange(len(members))]
    made = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", method) as archive:
        # Of a name twice, which is meant.
        warnings.simplefilter("ignore")
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name.encode("ascii", "replace").decode()), body, method)
    return made.getvalue()


def of_png(data: bytes, rng: Random) -> bytes:
    """Chunks, each with its checksum."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks or data[:4] != b"\x89PNG" or rng.random() < 0.1:
        return of_bytes(data, rng)
    place = rng.randrange(len(chunks))
    kind, body = chunks[place]
    match rng.randrange(5):
        case 0:
            del chunks[place]
        case 1:
            chunks.insert(place, rng.choice(chunks))
        case 2:
            text = b"k\0\0" + zlib.compress(bytes(rng.choice((10, 1 << 22))))
            chunks.insert(min(place, 1), (rng.choice((b"zTXt", b"iCCP", b"iTXt", b"tEXt")), text))
        case 3:
            sizes = [rng.choice((1, 9, 65535, 65536, (1 << 31) - 1)) for _ in "wh"]
            chunks[0] = (b"IHDR", struct.pack(">II", *sizes) + chunks[0][1][8:])
        case _:
            chunks[place] = (kind, of_bytes(body, rng))
    made = data[:8]
    for kind, body in chunks:
        made += len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
    return made


def of_cache(data: bytes, rng: Random) -> bytes:
    """What the driver would be given, with vkcat's checksum."""
    if rng.random() < 0.4 or len(data) < CACHE_HEAD.size:
        return of_bytes(data, rng)
    fields = list(CACHE_HEAD.unpack_from(data))
    body = of_bytes(data[CACHE_HEAD.size :], rng)
    fields[-2:] = [hashlib.sha256(body).digest(), len(body)]
    return CACHE_HEAD.pack(*fields) + body


LINES = rb"""
#include "/etc/passwd"
#include "../a.glsl"
#include <rows.glsl>
#/**/include "rows.glsl"
#include "shader.comp"
shared float s[1 << 30];
shared float s[2147483647]; shared float t[2147483647];
layout(local_size_x = 0) in;
layout(local_size_x = 4294967295) in;
layout(binding = 4294967295) buffer Z { float z[]; };
layout(binding = 9) uniform Block { float u; };
layout(binding = 9, r32ui) uniform uimage2D image;
layout(binding = 9) buffer Many { float q[]; } many[4];
layout(constant_id = 7) const int N = 1 << 31; shared float n[N];
layout(push_constant) uniform P { vec4 p; double d; };
#define A A A
#define B(x) x x x x
#line 3 "../x"
#extension GL_ARB_gpu_shader_int64 : require
#version 460
void main() {
}
#\
""".splitlines()[1:]


def of_glsl(data: bytes, rng: Random) -> bytes:
    """Lines taken out, repeated, or put in."""
    if rng.random() < 0.2:
        return of_bytes(data, rng)
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 2, 3))):
        at = rng.randrange(len(lines) + 1)
        match rng.randrange(3):
            case 0:
                lines[at:at] = [rng.choice(LINES)]
            case 1:
                lines[at:at] = lines[at : at + 1]
            case _:
                del lines[at : at + 1]
    return b"\n".join(lines)
