"""What every backend's device has alike: a lock for its threads, and an end."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Container
from threading import RLock
from weakref import WeakSet

from vkcat.device.interface import DeviceInfo
from vkcat.errors import DeviceError, DeviceLostError, mismatch

_open: WeakSet[Lifetime] = WeakSet()


def check_owned(thing: object, owned: Container[int], subject: str, info: DeviceInfo) -> None:
    """Raises `DeviceError` when `thing` is none whose identity a device owns: closed, or another's. Drivers and Kompute
    crash on either."""
    if id(thing) not in owned:
        raise DeviceError(mismatch(subject, f"one that is open on {info.name}", "one that is not"))


class Lifetime(ABC):
    """Open until closed; `close` releases once, whoever asks how often."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.lock = RLock()
        self._closed = False
        self._end = mismatch(info.name, "an open device", "one that has been closed")
        _open.add(self)

    def check_open(self) -> None:
        """Raises `DeviceError` when the device has been closed or lost, or another process opened it."""
        if self._closed:
            raise DeviceError(self._end)
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

    def abandon(self) -> None:
        """Leave the device to the process that opened it. In one forked from that, the driver's threads do not run, so
        that whatever waits for them never ends, and the lock may be held by a thread that is not there."""
        self.lock = RLock()
        self._closed = True
        expected = "a device that this process opened"
        self._end = mismatch(self.info.name, expected, "one from before the fork", "open another")
        self._forget()

    @abstractmethod
    def _release(self) -> None: ...

    @abstractmethod
    def _forget(self) -> None:
        """Hold nothing any more that could be closed."""


def _abandon_all() -> None:
    for device in list(_open):
        device.abandon()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
