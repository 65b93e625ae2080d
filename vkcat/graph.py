"""Symbolic dataflow of one step: tensors, and the ops that read and write them.

A graph knows neither bytes nor time. Several graphs of one model share tensors by holding the same `Tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Kernel
from vkcat.ops import OPS
from vkcat.shader import load


class Role(Enum):
    """Where a tensor's values come from and how long they live."""

    WEIGHT = "weight"  # set once, read by every step
    INPUT = "input"  # set by the host before each step
    STATE = "state"  # carried from step to step, read from one slot and written to the other
    MEMORY = "memory"  # kept from step to step in one slot, updated in place
    TEMPORARY = "temporary"  # lives inside one step


class Tensor(Struct, frozen=True, eq=False):
    """A named array: `dtype` is "float32", "uint32" or, of a weight, "float16"; `zeros` when it never holds others.

    Two tensors are the same only when they are one object.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    zeros: bool = False

    @property
    def pitch(self) -> int:
        """Elements from one row to the next: the last axis, rounded up to four."""
        return -(-self.shape[-1] // 4) * 4

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def size(self) -> int:
        """Elements, without padding."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on a device, padding included."""
        return np.dtype(self.dtype).itemsize * self.rows * self.pitch


class Node(Struct, frozen=True, eq=False, dict=True):
    """One application of a kernel."""

    name: str
    kernel: Kernel
    tensors: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    attributes: Mapping[str, float]
    precision: str

    @property
    def shader(self) -> str:
        """The name of the shader it runs: the kernel's, with its variant's suffix."""
        packed = any(self.tensors[binding].dtype == "float16" for binding in self.kernel.packed)
        return f"{self.kernel.name}.{self.precision}" if packed else self.kernel.name

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(t for binding, t in self.tensors.items() if binding not in self.kernel.outputs)

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[binding] for binding in self.kernel.written)

    @property
    def moved(self) -> dict[str, int]:
        """Elements of each binding that go between memory and the kernel at most; what is updated goes both ways."""
        parts = self.kernel.moved(self.sizes, self.attributes)
        found = {}
        for binding, tensor in self.tensors.items():
            whole = tensor.size * (2 if binding in self.kernel.updates else 1)
            found[binding] = min(whole, parts.get(binding, whole))
        return found

    @property
    def bytes_moved(self) -> int:
        """Bytes between memory and the kernel at most."""
        return sum(np.dtype(self.tensors[name].dtype).itemsize * count for name, count in self.moved.items())

    @property
    def operations(self) -> int:
        """Floating-point operations at most; see `vkcat.kernel.Kernel`."""
        return self.kernel.operations(self.sizes, self.attributes)


class Graph(Struct, eq=False):
    """Nodes in the order they run, what they carry to the next step, and what the host reads.

    `carries` maps a state to the tensor that replaces it in the next step. `outputs` are host-readable. `precision` is
    one of vkcat.kernel.PRECISIONS; nodes whose matrices are float16 run in it.
    """

    name: str
    precision: str = "float32"
    nodes: list[Node] = field(default_factory=list)
    carries: dict[Tensor, Tensor] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)

    def add(
        self, op: str, name: str, attributes: Mapping[str, float] | None = None, /, **inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Apply `op` to `inputs` by binding name; returns its outputs, new temporaries named `name.binding`.

        `attributes` are the op's numbers, all of them, by name, the sizes that only its outputs have among them. Raises
        `ShapeError` when an input is missing, unknown, or of another shape or dtype than the kernel takes.
        """
        kernel = OPS[op]
        dtypes = {binding.name: binding.dtype for binding in load(op).interface.bindings}
        wanted = [binding for binding in kernel.shapes if binding not in kernel.outputs]
        if sorted(inputs) != sorted(wanted):
            raise ShapeError(mismatch(f"{op}: inputs of {name}", sorted(wanted), sorted(inputs)))
        for binding in kernel.updates:
            if inputs[binding].role is not Role.MEMORY:
                raise ShapeError(
                    mismatch(f"{op}: {binding} ({inputs[binding].name})", "a memory", inputs[binding].role.value)
                )
        given = dict(attributes or {})
        asked = sorted([*kernel.attributes, *kernel.free_sizes])
        if sorted(given) != asked:
            raise ShapeError(mismatch(f"{op}: attributes of {name}", asked, sorted(given)))
        matrices = "float32" if self.precision == "float32" else "float16"
        for binding, tensor in inputs.items():
            expected = matrices if binding in kernel.packed else dtypes[binding]
            if tensor.dtype != expected:
                raise ShapeError(mismatch(f"{op}: {binding} ({tensor.name})", expected, tensor.dtype))
        sizes = kernel.sizes({binding: tensor.shape for binding, tensor in inputs.items()})
        sizes |= {size: int(given[size]) for size in kernel.free_sizes}
        made = {
            binding: Tensor(f"{name}.{binding}", kernel.shape(binding, sizes), dtypes[binding], Role.TEMPORARY)
            for binding in kernel.outputs
        }
        ordered = {binding: made.get(binding) or inputs[binding] for binding in kernel.shapes}
        self.nodes.append(Node(name, kernel, ordered, sizes, given, self.precision))
        return tuple(made[binding] for binding in kernel.outputs)

    def carry(self, state: Tensor, successor: Tensor) -> None:
        """In the next step `state` holds what `successor` holds at the end of this one."""
        if state.role is not Role.STATE or (state.shape, state.dtype) != (successor.shape, successor.dtype):
            raise ShapeError(
                mismatch(
                    f"carry of {state.name}", f"{state.dtype} {state.shape}", f"{successor.dtype} {successor.shape}"
                )
            )
        self.carries[state] = successor

    def output(self, tensor: Tensor) -> None:
        """Make `tensor` readable by the host after each step."""
        self.outputs.append(tensor)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor once, in the order of first use."""
        seen: set[Tensor] = set()
        for node in self.nodes:
            for tensor in node.tensors.values():
                if tensor not in seen:
                    seen.add(tensor)
                    yield tensor
