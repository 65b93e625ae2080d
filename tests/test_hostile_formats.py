"""Arrays, archives, images and ONNX that claim more than they hold, or that lie elsewhere."""

from __future__ import annotations

import io
import os
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import ROOT

from vkcat import npy, strict_json
from vkcat.errors import InputError, ModelError
from vkcat.images import load_image, load_numbers
from vkcat.importers.g2p_en import read_checkpoint
from vkcat.importers.onnx_gru import read_onnx

sys.path.insert(0, str(ROOT / "tools"))

from fuzzing import seeds


def _npy(text: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text.encode() + body


NPY = {
    "objects": _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
    "a record": _npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)),
    "product beyond 32 bits": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (65536, 65536), }"),
    "product beyond 64 bits": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"),
    "digits": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ("9" * 5000)),
    "an expression": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2**9,), }"),
    "nesting": _npy("(" * 9000),
    "cut short": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes(7)),
}


@pytest.mark.parametrize("name", list(NPY))
def test_npy(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npy").write_bytes(NPY[name])
    with pytest.raises(InputError, match="expected an .npy file of numbers"):
        load_numbers(tmp_path / "x.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "|u1", ">i8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_npy_as_numpy_writes_it(shape: tuple[int, ...], dtype: str, order: Any) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
    file = io.BytesIO()
    np.save(file, array)
    got = npy.parsed(file.getvalue())
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)


def test_an_npz_of_pickles_and_bombs(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, enc_emb=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ModelError, match="npz archive"):
        read_checkpoint(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("enc_emb.npy", bytes(50 << 20))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(ModelError, match="members that share bytes"):
        read_checkpoint(path)


def _png(width: int, height: int) -> bytes:
    made = b"\x89PNG\r\n\x1a\n"
    for kind, body in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(100))),
        (b"IEND", b""),
    ):
        made += len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
    return made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_png(65536, 65536), "4294967296 pixels"),
        (_png(9000, 9000), "at most 16777216 pixels"),
        (_png(90, 90), "expected an image"),
        (_png(9, 9)[:40], "expected an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "expected an image"),
    ],
    ids=["65536 x 65536", "9000 x 9000", "few pixels", "cut short", "PostScript"],
)
def test_images(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(InputError, match=message):
        load_image(tmp_path / "x.png")


def _external(folder: Path, **told: str) -> Path:
    model = onnx.ModelProto()
    model.ParseFromString(seeds.onnx_models()[0])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in told.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "gru.onnx").write_bytes(model.SerializeToString())
    return folder / "gru.onnx"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"location": "../weights"}, "external data in its own folder, got ../weights"),
        ({"location": "/etc/hostname"}, "external data in its own folder, got /etc/hostname"),
        ({"location": "link"}, "external data in its own folder, got link"),
        ({"location": "none"}, "No such file"),
        ({"location": "pipe"}, "no regular file"),
        ({"location": "w", "offset": "9" * 15}, "bytes of their own among 60"),
        ({"location": "w", "length": "9" * 15}, "bytes of their own among 60"),
        ({"location": "w", "length": "-1"}, "a number as length"),
    ],
)
def test_onnx_weights_elsewhere(tmp_path: Path, told: dict[str, str], message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights").write_bytes(bytes(60))
    (folder / "w").write_bytes(bytes(60))
    (folder / "link").symlink_to(tmp_path / "weights")
    os.mkfifo(folder / "pipe")
    read_onnx(_external(folder, location="w"))
    with pytest.raises(ModelError, match=message):
        read_onnx(_external(folder, **told))


def test_onnx_constants_that_double(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.ParseFromString(seeds.onnx_models()[1])
    nodes = [onnx.helper.make_node("Concat", [f"c{at}"] * 2, [f"c{at + 1}"], axis=1) for at in range(40)]
    nodes[0].input[:] = ["half", "half"]
    for at, node in enumerate(nodes):
        model.graph.node.insert(at, node)
    (tmp_path / "x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="bytes of constants, computed from those in the file, got more"):
        read_onnx(tmp_path / "x.onnx")


def test_half_of_a_character_in_json() -> None:
    """Of a pair both halves are a character; one alone can be named but is none."""
    assert strict_json.decoded(b'"\\ud83d\\ude00"') == "\U0001f600"
    for text in (b'"\\ud83d"', b'{"\\uDE00": 1}', b'["a\\ud83d\\ud83d"]'):
        with pytest.raises(ValueError, match="half of a character"):
            strict_json.decoded(text)
