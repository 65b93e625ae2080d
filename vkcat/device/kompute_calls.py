"""Calls of PyPI `kp` that fail: what it raises, and what it takes no notice of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.device.failures import failure
from vkcat.errors import DeviceError, DeviceLostError, mismatch
from vkcat.shader import Shader

MOST_CONSTANTS = 1 << 10
"""Of a shader by their ids: kp is given a number for each id there could be."""


def kp() -> Any:
    """The package. Raises `DeviceError` where it is not installed."""
    try:
        import kp as package
    except ImportError as error:
        raise DeviceError(
            "backend kompute: expected the package kp, got none; see docs/backends.md on how to build it,"
            " or use --backend vulkan"
        ) from error
    return package


def numbered(shader: Shader, spec: Sequence[int]) -> NDArray[np.float32]:
    """Values of a shader's specialisation constants as kp takes them: by their ids, from 0 on.

    At ids that the shader has not are zeros, which nothing reads. kp reads every constant as float bits when these are
    floats: bits are sent as they are. Raises `DeviceError`.
    """
    ids = [identifier for identifier, _ in shader.interface.spec.values()]
    if max(ids, default=0) >= MOST_CONSTANTS:
        expected = f"ids of specialisation constants below {MOST_CONSTANTS} for kompute"
        raise DeviceError(mismatch(shader.name, expected, max(ids)))
    values = np.zeros(max(ids, default=-1) + 1, np.uint32)
    values[ids] = spec
    return values.view(np.float32)


@contextmanager
def calling(subject: str) -> Iterator[None]:
    """Turn what kp raises for a failed Vulkan call, as "vk::Queue::submit: ErrorDeviceLost", into a `DeviceError`."""
    try:
        yield
    except RuntimeError as error:
        found = re.search(r": (Error[A-Z]\w+|Timeout)$", str(error))
        if found is None:
            raise DeviceError(mismatch(subject, "success", str(error))) from error
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", found[1])
        raise failure(subject, f"VK_{words.upper()}") from error


class Proof:
    """Tells whether a sequence ran to its end. kp looks neither at what a submission gives nor at what a wait does, and
    what was computed before would be taken for what was asked for.

    The device holds a word. Its copy on the host is taken away before a sequence runs, whose last operation copies it.
    """

    _WORD = 0x5EE_D0E5

    def __init__(self, manager: Any) -> None:
        word = np.array([self._WORD], np.uint32)
        with ExitStack() as failed, ExitStack() as made:
            self._tensor = manager.tensor_t(word, tensor_type=kp().TensorTypes.device)
            failed.callback(self.destroy)
            self._on_host = self._tensor.data()
            written, proving = manager.sequence(), manager.sequence()
            for sequence in (written, proving):
                made.callback(sequence.destroy)
            written.record(kp().OpTensorSyncDevice([self._tensor]))
            written.eval()
            self.finish(proving)
            self.run(proving, "kompute's first submission")
            failed.pop_all()

    def finish(self, sequence: Any) -> None:
        """Record the last operation of a sequence."""
        sequence.record(kp().OpTensorSyncLocal([self._tensor]))

    def run(self, sequence: Any, subject: str) -> None:
        """Run a finished sequence and wait. Raises `DeviceLostError` when it was not run, or not waited for."""
        self._on_host[0] = 0
        with calling(subject):
            sequence.eval()
        if self._on_host[0] != self._WORD:
            remedy = "the device was lost, or out of memory; open it anew, and go on from a saved state"
            raise DeviceLostError(
                mismatch(subject, "commands that ran", "some that did not, or not to the end", remedy)
            )

    def destroy(self) -> None:
        self._tensor.destroy()
