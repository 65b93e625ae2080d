"""Images and vectors from files, and images cut into patches."""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.arrays import float32, numbers
from vkcat.config import PatchesInput
from vkcat.errors import InputError, mismatch

Array = NDArray[Any]


def cut(image: Array, read: PatchesInput, batch: int) -> NDArray[np.float32]:
    """Patches (B, P, K) of pixels (rows, columns, channels), or (B, ...): row by row, channels innermost.

    One channel may be left out. Integers of 8 bits become fractions of 255. Raises `InputError`.
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
        # Mapped, so that a size that the header claims and the file has not is found before memory is asked for it.
        array = np.array(np.lib.format.open_memmap(path, mode="r"))  # type: ignore[no-untyped-call]
    except (OSError, ValueError, EOFError, OverflowError, SyntaxError, TokenError) as error:
        raise InputError(mismatch(str(path), "an .npy file of numbers", str(error))) from error
    if array.dtype.kind not in "iuf":
        raise InputError(mismatch(str(path), "an .npy file of numbers", array.dtype))
    return np.asarray(array)


def load_image(path: Path) -> Array:
    """Pixels of an `.npy` file or, with pillow, of any image it reads: (rows, columns[, channels]).

    Raises `InputError`.
    """
    if path.suffix == ".npy":
        return load_numbers(path)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        remedy = "pip install 'vkcat[images]', or give an .npy file"
        raise InputError(mismatch(str(path), "pillow, to read it", "no such package", remedy)) from error
    try:
        with Image.open(path) as image:
            # A palette's indices are no pixels.
            return np.asarray(image.convert("RGB") if image.mode == "P" else image)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(mismatch(str(path), "an image", str(error))) from error
