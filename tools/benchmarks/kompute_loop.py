"""Kompute as its own examples use it: tensors, an algorithm an op, and for each op and step an evaluated sequence.

The examples are those of Kompute's README, its matrix products and its logistic regression (of the repository
KomputeProject/kompute). `eval` waits, so one op ends before the next begins, and no barrier is needed between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import kp
import numpy as np
from numpy.typing import NDArray

from benchmarks.contender import Settings
from benchmarks.program import Call, physical_device, program
from benchmarks.scene import Scene
from vkcat.device.kompute_calls import numbered

Array = NDArray[Any]


class KomputeLoop:
    """See `benchmarks.contender.Contender`. With `recorded` each op's sequence is recorded once."""

    notes: list[str] = []

    def __init__(self, scene: Scene, settings: Settings, recorded: bool) -> None:
        device = physical_device(settings.device)
        self._program = program(scene, device)
        self._name = device.name
        self._manager = kp.Manager(device.index)
        self._tensors = [self._manager.tensor_t(words) for words in self._program.buffers]
        self._manager.sequence().record(kp.OpTensorSyncDevice(self._tensors)).eval()
        self._algorithms = [[self._algorithm(call) for call in step] for step in self._program.steps]
        self._history = self._tensors[self._program.history]
        self._sequences = [[self._recorded(algorithm) for algorithm in step] for step in self._algorithms]
        self._read = self._manager.sequence().record(kp.OpTensorSyncLocal([self._history]))
        self._run = self._run_recorded if recorded else self._run_anew
        self._position = 0

    def _algorithm(self, call: Call) -> Any:
        tensors = [self._tensors[at] for at in call.buffers]
        # kp takes constants as float bits.
        numbers = numbered(call.shader, call.spec), call.push.view(np.float32)
        return self._manager.algorithm(tensors, call.shader.code, list(call.groups), *numbers)

    def _recorded(self, algorithm: Any) -> Any:
        return self._manager.sequence().record(kp.OpAlgoDispatch(algorithm))

    def _run_anew(self, parity: int) -> None:
        for algorithm in self._algorithms[parity]:
            self._manager.sequence().record(kp.OpAlgoDispatch(algorithm)).eval()
        self._manager.sequence().record(kp.OpTensorSyncLocal([self._history])).eval()

    def _run_recorded(self, parity: int) -> None:
        for sequence in self._sequences[parity]:
            sequence.eval()
        self._read.eval()

    @property
    def versions(self) -> Mapping[str, str]:
        return {"kp": version("kp"), "device": self._name, "numpy": np.__version__}

    def generate(self, count: int) -> Array:
        tokens = []
        for _ in range(count):
            self._run(self._position & 1)
            tokens.append(self._program.tokens_at(self._history.data(), self._position))
            self._position += 1
        return np.stack(tokens, axis=1)

    def logits(self) -> Array:
        tensor = self._tensors[self._program.logits[1 - (self._position & 1)]]
        self._manager.sequence().record(kp.OpTensorSyncLocal([tensor])).eval()
        return self._program.logits_in(tensor.data())

    def device_ns(self, count: int) -> None:
        del count

    def close(self) -> None:
        """kp crashes unless sequences go before algorithms, algorithms before tensors, and the manager last."""
        for sequence in [*(one for step in self._sequences for one in step), self._read]:
            sequence.destroy()
        for algorithm in [one for step in self._algorithms for one in step]:
            algorithm.destroy()
        for tensor in self._tensors:
            tensor.destroy()
        self._manager.destroy()


def open_contender(scene: Scene, settings: Settings, *, recorded: bool) -> KomputeLoop:
    return KomputeLoop(scene, settings, recorded)
