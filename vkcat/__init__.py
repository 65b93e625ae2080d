"""vkcat: a Vulkan compute runtime for small recurrent, attentive and sparse models.

`vkcat.gru` runs whole GRU sequences on arrays; `vkcat.load`, `vkcat.Session` and `vkcat.Sequences` open a model folder
on a device.
"""

from vkcat.device.backends import open_device
from vkcat.errors import (
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    InputError,
    ModelError,
    OutOfMemoryError,
    ShaderError,
    ShapeError,
    VkcatError,
    VkcatWarning,
)
from vkcat.load import load
from vkcat.presets import initial_model
from vkcat.sequences import GruOutput, Sequences, gru
from vkcat.session import Session
from vkcat.stored import StoredModel, read_model
from vkcat.transducer import Transducer

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "DeviceLostError",
    "DeviceTimeoutError",
    "GruOutput",
    "InputError",
    "ModelError",
    "OutOfMemoryError",
    "Sequences",
    "Session",
    "ShaderError",
    "ShapeError",
    "StoredModel",
    "Transducer",
    "VkcatError",
    "VkcatWarning",
    "gru",
    "initial_model",
    "load",
    "open_device",
    "read_model",
]
