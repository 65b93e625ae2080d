"""PyPI `g2p_en`: an English grapheme-to-phoneme GRU encoder-decoder (Park and Kim, Apache-2.0).

Only `checkpoint20.npz` of the installed distribution is read; the package's code and its dependencies are not needed.
The symbols are those of its `G2p.__init__`, which the checkpoint does not carry.
"""

from __future__ import annotations

import struct
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vkcat import npy
from vkcat.config import EmbeddingInput, GruBlock, ModelConfig, Stack, TokenOutput, TransducerConfig, parse, to_json
from vkcat.errors import ModelError, mismatch
from vkcat.files import contents
from vkcat.importers.tensors import finite
from vkcat.model import build

Array = NDArray[Any]
MOST_BYTES = 256 << 20

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
GRAPHEMES = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")


def phonemes() -> tuple[str, ...]:
    """ARPAbet in alphabetical order, vowels with stress 0 to 2; the checkpoint has a bare UW as well."""
    stressed = [f"{vowel}{stress}" for vowel in _VOWELS.split() for stress in "012"]
    return ("<pad>", "<unk>", "<s>", "</s>", *sorted([*stressed, *_CONSONANTS.split(), "UW"]))


_NAMES = {
    "enc_emb": "encoder.input.weight",
    "enc_w_ih": "encoder.blocks.0.weight_ih",
    "enc_w_hh": "encoder.blocks.0.weight_hh",
    "enc_b_ih": "encoder.blocks.0.bias_ih",
    "enc_b_hh": "encoder.blocks.0.bias_hh",
    "dec_emb": "decoder.input.weight",
    "dec_w_ih": "decoder.blocks.0.weight_ih",
    "dec_w_hh": "decoder.blocks.0.weight_hh",
    "dec_b_ih": "decoder.blocks.0.bias_ih",
    "dec_b_hh": "decoder.blocks.0.bias_hh",
    "fc_w": "decoder.output.weight",
    "fc_b": "decoder.output.bias",
}


def find_checkpoint() -> Path:
    """`checkpoint20.npz` of the installed distribution. Raises `ModelError` when it is not installed."""
    try:
        files = metadata.files("g2p_en") or []
    except metadata.PackageNotFoundError as error:
        raise ModelError("g2p-en: expected the package g2p_en, got none; pip install --no-deps g2p_en") from error
    for file in files:
        if file.name == "checkpoint20.npz":
            return Path(str(file.locate()))
    raise ModelError(mismatch("g2p-en", "checkpoint20.npz in the package g2p_en", "no such file", "reinstall g2p_en"))


def read_checkpoint(path: Path) -> tuple[ModelConfig, dict[str, Array]]:
    """Configuration and weights from the checkpoint. Raises `ModelError` when it is not the one expected."""
    try:
        arrays = _arrays(contents(path, MOST_BYTES), path)
    except OSError as error:
        raise ModelError(mismatch(str(path), "an npz archive", error.strerror)) from error
    # On damaged bytes zipfile raises BadZipFile, NotImplementedError, RuntimeError, struct.error, and others still.
    except (ValueError, EOFError, RuntimeError, LookupError, struct.error, zipfile.BadZipFile) as error:
        raise ModelError(mismatch(str(path), "an npz archive", str(error) or type(error).__name__)) from error
    missing = sorted(_NAMES.keys() - arrays.keys())
    if missing:
        raise ModelError(mismatch(str(path), f"the arrays {', '.join(_NAMES)}", f"no {', '.join(missing)}"))
    for name in ("enc_emb", "dec_emb", "enc_w_hh"):
        if arrays[name].ndim != 2:
            raise ModelError(mismatch(f"{path}: {name}", "a matrix", arrays[name].shape))
    config = _config(arrays["enc_emb"].shape[1], arrays["dec_emb"].shape[1], arrays["enc_w_hh"].shape[1])
    parse(to_json(config), str(path))
    weights = {_NAMES[name]: array for name, array in arrays.items()}
    for name, tensor in build(config).weights.items():
        if weights[name].shape != tensor.shape:
            raise ModelError(mismatch(f"{path}: {name}", tensor.shape, weights[name].shape))
    return config, weights


def _arrays(data: bytes, path: Path) -> dict[str, Array]:
    """What of the archive is known, in float32. Raises `ModelError`, `ValueError`, and what zipfile raises."""
    arrays = {}
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if sum(member.file_size for member in members.values()) > len(data):
            raise ValueError("members that share bytes")
        for name in _NAMES:
            member = members.get(f"{name}.npy")
            if member is None:
                continue
            # So one is as large as it says, and all are no larger than the file; np.savez writes them so.
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise ValueError(f"{name}: compressed, or damaged")
            arrays[name] = finite(npy.parsed(archive.read(member)), f"{path}: {name}")
    return arrays


def _config(encoder_width: int, decoder_width: int, hidden: int) -> ModelConfig:
    block = GruBlock(hidden=hidden)
    graphemes = EmbeddingInput(symbols=GRAPHEMES, unknown="<unk>", end="</s>", lowercase=True, max_tokens=256)
    return TransducerConfig(
        name="g2p-en",
        encoder=Stack(input=graphemes, width=encoder_width, blocks=(block,)),
        decoder=Stack(
            input=EmbeddingInput(symbols=phonemes()),
            width=decoder_width,
            blocks=(block,),
            output=TokenOutput(start="<s>", end="</s>", max_tokens=20),
        ),
    )
