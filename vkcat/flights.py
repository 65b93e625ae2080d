"""Steps of generation that have been launched, and the tokens they draw."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.executor import Steps
from vkcat.graph import Tensor

Array = NDArray[Any]
GRAPH = "generate"
NONE: Array = np.zeros((0, 0), np.uint32)


class Flight(Struct, eq=False):
    """Steps in one launch: `position` (B) is where the first token lies, `tokens` (B, count) what has landed."""

    count: int
    position: Array
    tokens: Array = NONE


class Flights:
    """Launches and lands in order. `drawn` (B) counts the tokens of each stream, those under way among them."""

    def __init__(self, steps: Steps, history: Tensor, batch: int) -> None:
        self._steps, self._history = steps, history
        self._streams = np.arange(batch)[:, None]
        self._flying: deque[Flight] = deque()
        self.drawn: Array = np.zeros(batch, np.int64)

    @property
    def last(self) -> Flight | None:
        """The newest that has not landed."""
        return self._flying[-1] if self._flying else None

    def launch(self, most: int) -> Flight:
        """Launch at most so many steps: a power of two, so that few different numbers are ever recorded."""
        flight = Flight(1 << (most.bit_length() - 1), self.drawn.copy())
        # Among them before it is launched and until it has been read, whatever interrupts either.
        self._flying.append(flight)
        self._steps.launch(GRAPH, flight.count)
        self.drawn = self.drawn + flight.count
        return flight

    def land(self, flight: Flight) -> bool:
        """Wait for a launch and for those before it, and read what they drew. Returns whether it was still to land."""
        landing = flight in self._flying
        while flight in self._flying:
            first = self._flying[0]
            self._steps.finish()
            at = (first.position[:, None] + np.arange(first.count)) % self._history.shape[1]
            first.tokens = self._steps.read(self._history)[self._streams, at]
            self._flying.popleft()
        return landing

    def forget(self) -> None:
        """Nothing is waited for any more."""
        self._flying.clear()
