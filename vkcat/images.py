"""Images and vectors from files, and images cut into patches."""

from __future__ import annotations

import sys
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat import npy
from vkcat.arrays import float32, numbers
from vkcat.config import PatchesInput
from vkcat.errors import InputError, mismatch
from vkcat.files import contents

Array = NDArray[Any]

FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 1 << 24
MOST_IMAGE_BYTES = 256 << 20
"""Of pixels that nothing compresses, of 16 bits and four channels, twice as much as there can be."""


def cut(image: Array, read: PatchesInput, batch: int) -> NDArray[np.float32]:
    """Patches (B, P, K) of pixels (rows, columns, channels), or (B, ...): row by row, channels innermost.

    One channel may be left out. Unsigned integers of 8 bits become fractions of 255. Raises `InputError`.
    """
    height, width = read.rows * read.side, read.columns * read.side
    pixels = numbers("image", image, "iuf")
    scale = 1 / 255 if pixels.dtype == np.uint8 else 1.0
    if read.channels == 1 and pixels.shape[-2:] == (height, width):
        pixels = pixels[..., None]
    if pixels.ndim == 3:
        pixels = np.broadcast_to(pixels, (batch, *pixels.shape))
    if pixels.shape != (batch, height, width, read.channels):
        expected = f"({height}, {width}, {read.channels}) numbers, or {batch} of them"
        raise InputError(mismatch("image", expected, f"{np.shape(image)} of {np.asarray(image).dtype}"))
    split = pixels.reshape(batch, read.rows, read.side, read.columns, read.side, read.channels)
    patches = split.transpose(0, 1, 3, 2, 4, 5).reshape(batch, read.count, read.pixels)
    return np.ascontiguousarray(scale * float32("image", patches), np.float32)


def load_numbers(path: Path) -> Array:
    """The array of an `.npy` file. Raises `InputError`; never unpickles."""
    try:
        return npy.parsed(contents(path, sys.maxsize))
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) else error
        raise InputError(mismatch(str(path), "an .npy file of numbers", got)) from error


def load_image(path: Path) -> Array:
    """Pixels of an `.npy` file or, with pillow, of a PNG or JPEG: (rows, columns[, channels]).

    Raises `InputError`.
    """
    if path.suffix == ".npy":
        return load_numbers(path)
    try:
        from PIL import Image
    except ImportError as error:
        remedy = "pip install 'vkcat[images]', or give an .npy file"
        raise InputError(mismatch(str(path), "pillow, to read it", "no such package", remedy)) from error
    try:
        file = BytesIO(contents(path, MOST_IMAGE_BYTES))
        # What pillow has to say of a damaged file, and of one that is large, is said below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of its many formats some start other programs, as Ghostscript.
            with Image.open(file, formats=FORMATS) as image:
                _check_size(path, image.size)
                # A palette's indices are no pixels.
                return np.asarray(image.convert("RGB") if image.mode == "P" else image)
    except OSError as error:
        raise InputError(mismatch(str(path), "an image", error.strerror or str(error))) from error
    except InputError:
        raise
    # On damaged bytes pillow raises SyntaxError, struct.error, zlib.error, EOFError, and others still.
    except Exception as error:
        raise InputError(mismatch(str(path), "an image", f"{type(error).__name__}: {error}")) from error


def _check_size(path: Path, size: tuple[int, int]) -> None:
    """Before there is memory for the pixels, of which a few bytes may claim any number."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise InputError(mismatch(str(path), f"an image of at most {MOST_PIXELS} pixels", f"{height} x {width}"))
