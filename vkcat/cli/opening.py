"""The one device of a command that takes several backends but compares none."""

from __future__ import annotations

from collections.abc import Sequence

from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.errors import InputError, mismatch


def one_device(backends: Sequence[str], device: str | None, *, several_steps: bool) -> Device:
    """The device of the one backend, which perhaps must put several steps into a submission. Raises `InputError`."""
    if len(backends) > 1:
        raise InputError(mismatch("--backend", "one backend with --fit or --sweep", ", ".join(backends)))
    opened = open_device(backends[0], device)
    if opened.rewrites or not several_steps:
        return opened
    opened.close()
    expected = "a backend that can put several steps into a submission"
    raise InputError(mismatch("--backend", expected, backends[0], "see --backend vulkan"))
