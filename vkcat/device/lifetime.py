"""What every backend's device has alike: a lock for its threads, and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import RLock

from vkcat.device.interface import DeviceInfo
from vkcat.errors import DeviceError, DeviceLostError, mismatch


class Lifetime(ABC):
    """Open until closed; `close` releases once, whoever asks how often."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.lock = RLock()
        self._closed = False

    def check_open(self) -> None:
        """Raises `DeviceError` when the device has been closed or lost."""
        if self._closed:
            raise DeviceError(mismatch(self.info.name, "an open device", "one that has been closed"))
        if self.lost:
            remedy = "open it anew, and go on from a saved state"
            raise DeviceLostError(mismatch(self.info.name, "a device that works", "one that was lost", remedy))

    @property
    @abstractmethod
    def lost(self) -> bool: ...

    def close(self) -> None:
        """Release everything made on the device. A second call does nothing."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._release()

    @abstractmethod
    def _release(self) -> None: ...
