"""Errors that a user can act on.

Every message names the subject, what was expected, what came and the remedy. The command line prints it on one line
and exits with code 2; anything else that escapes is a fault of vkcat and keeps its traceback.
"""

from __future__ import annotations


class VkcatError(Exception):
    """Base of all errors vkcat raises on purpose."""


class VkcatWarning(UserWarning):
    """Something is not as it should be, and vkcat goes on: time is lost by it, or a check."""


class DeviceError(VkcatError):
    """No loader, no driver, no such device, a missing capability, or a failed Vulkan call."""


class OutOfMemoryError(DeviceError):
    """The device or the driver has no memory left for what was asked."""


class DeviceLostError(DeviceError):
    """The device stopped and does not come back; another may be opened."""


class DeviceTimeoutError(DeviceError):
    """A submission did not end in time."""


class ShaderError(VkcatError):
    """A shader that does not compile, or whose interface differs from its kernel's."""


class ShapeError(VkcatError):
    """A tensor of another shape or dtype than the kernel takes."""


class ModelError(VkcatError):
    """A model folder that cannot be used: configuration, weights, or the two together."""


class InputError(VkcatError):
    """Input text or arrays outside what the model or function accepts."""


MOST_CHARACTERS = 2000
"""Of each part of a message: names and values come from files, and may be as long as these."""


def mismatch(subject: str, expected: object, got: object, remedy: str = "") -> str:
    """One line in the form every vkcat error has: `subject: expected E, got G; remedy`."""
    line = f"{_shortened(subject)}: expected {_shortened(expected)}, got {_shortened(got)}"
    return f"{line}; {remedy}" if remedy else line


def _shortened(part: object) -> str:
    text = str(part)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
