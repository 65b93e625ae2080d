"""Cases of the ops with a few streams, each way that a device may run them, and what of it is one stream's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from vkcat.device.interface import Device
from vkcat.glsl import SUBGROUP
from vkcat.kernel import Case, Kernel
from vkcat.ops import OPS
from vkcat.ops.gates import STEP
from vkcat.shader import exists, load
from vkcat.validate.expected import expectation
from vkcat.validate.ops import Ran, case_inputs, case_shader, run_case
from vkcat.validate.result import compare

Array = np.ndarray[Any, Any]

STREAM = 1
"""The one that is meddled with: it has neighbours on both sides."""


class Way(Struct, frozen=True):
    """A case of a kernel, and the shader that runs it: with the tree in shared memory, or in subgroups."""

    kernel: Kernel
    case: Case
    shader: str

    def inputs(self) -> dict[str, Array]:
        """Of which STREAM reads all it is given."""
        arrays = case_inputs(self.kernel, self.case)
        for name, value in {"mode": STEP, "lengths": self.case.sizes.get("R", 0) // self.case.sizes["B"]}.items():
            if name in arrays:
                arrays[name][STREAM] = value
        return arrays

    def run(self, device: Device, arrays: Mapping[str, Array]) -> Ran:
        ran = run_case(device, self.kernel, self.case, arrays, {self.shader: load(self.shader)})
        assert not ran.stray
        assert not any(ran.unwritten.values())
        return ran

    def checked(self, device: Device, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What it gives of these, each number within its bound."""
        ran = self.run(device, arrays)
        expected = expectation(ran.node, ran.given, ran.got)
        for name, got in ran.got.items():
            result = compare(self.kernel.name, "", name, got, expected.values[name], expected.bounds[name], "")
            assert result.problem == "", name
        return ran.got

    def of(self, name: str, array: Array, stream: int) -> Array:
        """What of a tensor is a stream's: a view of its row, or of its rows in a sequence."""
        if self.kernel.shapes[name].split()[0] == "R":
            return array[stream :: self.case.sizes["B"]]
        return array[stream : stream + 1]

    def is_of_streams(self, name: str) -> bool:
        return self.kernel.shapes[name].split()[0] in ("B", "R")

    @property
    def others(self) -> list[int]:
        return [stream for stream in range(self.case.sizes["B"]) if stream != STREAM]


def few_streams(kernel: Kernel) -> Case:
    """A case of three streams or a few more, and of several steps where the op has rows of a sequence."""
    in_rows = any(symbols.split()[0] == "R" for symbols in kernel.shapes.values())
    fitting = [case for case in kernel.cases if case.sizes["B"] >= 3]
    if in_rows:
        fitting = [case for case in fitting if case.sizes["R"] >= 2 * case.sizes["B"]]
    return min(fitting, key=lambda case: case.sizes["B"])


def _ways(kernel: Kernel, case: Case) -> list[Way]:
    found = []
    for precision in ("float32", "float16") if kernel.packed else ("float32",):
        now = replace(case, precision=precision)
        plain = case_shader(kernel, now)
        found += [Way(kernel, now, name) for name in (f"{plain}{SUBGROUP}", plain) if exists(name)]
    return found


WAYS = {kernel.name: _ways(kernel, few_streams(kernel)) for kernel in OPS.values()}
"""By op; the first is what a device with float32 weights runs."""


def each(ops: Iterable[str]) -> pytest.MarkDecorator:
    """Every way of these ops; what comes beside the first takes long."""
    params = [
        pytest.param(way, id=way.shader, marks=[pytest.mark.long] if way is not WAYS[op][0] else [])
        for op in ops
        for way in WAYS[op]
    ]
    return pytest.mark.parametrize("way", params)
