"""A kernel: a shader's interface together with the NumPy reference that says what it must compute.

Nothing here knows a device. Shapes are written with the names of the push constants, so the sizes of a dispatch follow
from the shapes of its tensors: `gru_cell` has `x: "B I"` and `w_ih: "3H I"`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from vkcat.errors import ShaderError, ShapeError, mismatch
from vkcat.shader import Shader, load, parted
from vkcat.tiling import Machine, Tiling, of_products

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Sizes = Mapping[str, int]

UNIT_ROUNDOFF = 2.0**-24
"""Half a unit in the last place of float32: the relative error of one rounded operation."""

SMALLEST, GREATEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Of float32: the range of normal numbers. What is smaller a device may take for zero, as input or as result."""

ROUNDED = "float16-rounded"
PRECISIONS = ("float32", "float16", ROUNDED)
"""Matrices in float32; in float16; in float16 with sums rounded to it after every four products."""

HALF_ROUNDOFF = 2.0**-10
HALF_SMALLEST, HALF_GREATEST = 2.0**-14, 65504.0
"""Of float16: a whole unit in the last place, as a device may round towards zero; and the range of normal numbers."""

_DIMENSION = re.compile(r"^(\d*)([A-Z]\w*)$")


class Launch(Struct, frozen=True):
    """How much of a shader to run: invocations along x, y, z (rounded up to workgroups) or workgroups themselves."""

    invocations: tuple[int, int, int] = (1, 1, 1)
    workgroups: tuple[int, int, int] | None = None

    @staticmethod
    def of_products(outputs: int, batch: int, tiling: Tiling) -> Launch:
        """Of a shader that includes tiling.glsl, for so many outputs of each stream."""
        along = math.ceil(outputs / tiling.rows) * tiling.split
        return Launch(invocations=(along, math.ceil(batch / tiling.streams), 1))

    def groups(self, local_size: tuple[int, int, int]) -> tuple[int, int, int]:
        if self.workgroups is not None:
            return self.workgroups
        x, y, z = (math.ceil(n / local) for n, local in zip(self.invocations, local_size, strict=True))
        return (x, y, z)


class Case(Struct, frozen=True):
    """Concrete sizes and a seed at which a kernel is checked."""

    sizes: Sizes
    seed: int = 0
    scale: float = 1.0
    attributes: Mapping[str, float] = field(default_factory=dict)
    precision: str = PRECISIONS[0]

    @property
    def name(self) -> str:
        text = "-".join(f"{key}{value}" for key, value in self.sizes.items())
        text = text if self.scale == 1.0 else f"{text}-scale{self.scale:g}"
        return text if self.precision == PRECISIONS[0] else f"{text}-{self.precision}"


class Part(Struct, frozen=True):
    """A kernel inside a fused one: `names` are the fused kernel's for bindings that it calls otherwise.

    What no binding of the fused kernel has the name of stays inside it. `zeros` are inputs that it leaves out, as they
    hold zeros.
    """

    kernel: Kernel
    names: Mapping[str, str] = field(default_factory=dict)
    zeros: tuple[str, ...] = ()

    def outer(self, binding: str) -> str:
        return self.names.get(binding, binding)


def untiled(sizes: Sizes, machine: Machine) -> Tiling:
    """Of a shader that leaves nothing to choose."""
    del sizes, machine
    return Tiling()


class Kernel(Struct, frozen=True):
    """A shader's name, shapes, reference, error bound and cases.

    `shapes` lists every binding in order with its symbolic shape. `reference` takes all inputs as float64 (or uint32)
    and returns the outputs. `bound` gives, for each output, the absolute error allowed at each element, derived from
    the inputs and the reference's outputs; `why` says in a few words where that comes from. `launch` takes the sizes
    and how its work is shared; `tiling` is what to choose where nothing was measured, for a shader with tiling.glsl or
    lanes.glsl.
    `constants` are the shader's other specialisation constants, by sizes: what a compiler is to know of these.
    `attributes` are the numbers a graph sets, float32 push constants by the same names; the reference finds them among
    its inputs.

    `updates` are inputs that are changed in place: the reference returns them as they are after. `packed` are the
    matrices that may be float16. `moved` tells, of bindings that are not read or written as a whole, how many elements
    go either way at most. `operations` counts, from sizes and attributes, the floating-point operations of the
    formula at most: a multiply-add is two, any other sum, product, quotient, greatest of two, or function of a number
    one; work on integers, signs and copies is none.

    `choices` are outputs of indices that rounding may decide. What a device chose the reference finds among its inputs,
    as `chosen_NAME`, and keeps to it in rows where rounding leaves that open.

    A fused kernel has `parts`, in the order of a graph that it stands for; it does so where it `fits` the sizes.
    """

    name: str
    shapes: Mapping[str, str]
    outputs: tuple[str, ...]
    reference: Callable[[Arrays], dict[str, Array]]
    bound: Callable[[Arrays], dict[str, Array]]
    why: str
    launch: Callable[[Sizes, Tiling], Launch]
    inputs: Callable[[np.random.Generator, Case], dict[str, Array]]
    operations: Callable[[Sizes, Mapping[str, float]], int]
    cases: tuple[Case, ...]
    attributes: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    tiling: Callable[[Sizes, Machine], Tiling] = untiled
    constants: Mapping[str, Callable[[Sizes], int]] = {}
    packed: tuple[str, ...] = ()
    moved: Callable[[Sizes, Mapping[str, float]], Mapping[str, int]] = lambda sizes, attributes: {}
    choices: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    fits: Callable[[Sizes], bool] = lambda sizes: True

    @property
    def every_case(self) -> tuple[Case, ...]:
        """The cases in each precision; sums of large terms have no bound where they are rounded to float16."""
        if not self.packed:
            return self.cases
        small = [case for case in self.cases if case.scale <= 1]
        packed = [replace(case, precision="float16") for case in self.cases]
        # Nothing is fused where partial sums are rounded: that precision shows what a product by itself does.
        rounded = [] if self.parts else [replace(case, precision=ROUNDED) for case in small]
        return (*self.cases, *packed, *rounded)

    @property
    def free_sizes(self) -> tuple[str, ...]:
        """Dimensions that only outputs have: a graph gives them with the attributes."""
        given = [self.shapes[binding] for binding in self.shapes if binding not in self.outputs]
        known = {_dimension(symbol)[1] for symbols in given for symbol in symbols.split()}
        asked = [_dimension(symbol)[1] for binding in self.outputs for symbol in self.shapes[binding].split()]
        return tuple(dict.fromkeys(name for name in asked if name not in known))

    @property
    def written(self) -> tuple[str, ...]:
        """Everything the shader writes: its outputs, and what it updates in place."""
        return (*self.outputs, *self.updates)

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Values of the dimension names in some or all bindings' shapes.

        Raises `ShapeError` when the shapes disagree with each other.
        """
        sizes: dict[str, int] = {}
        for binding, symbols in self.shapes.items():
            if binding not in shapes:
                continue
            shape = shapes[binding]
            names = symbols.split()
            if len(names) != len(shape):
                raise ShapeError(mismatch(f"{self.name}: {binding}", f"({', '.join(names)})", shape))
            for symbol, length in zip(names, shape, strict=True):
                factor, name = _dimension(symbol)
                known = sizes.setdefault(name, length // factor)
                if known * factor != length:
                    raise ShapeError(mismatch(f"{self.name}: {binding}", resolved(symbols, sizes), shape))
        return sizes

    def shape(self, binding: str, sizes: Sizes) -> tuple[int, ...]:
        """Shape of a binding at the given sizes."""
        return resolved(self.shapes[binding], sizes)


@lru_cache(maxsize=None)
def _dimension(symbol: str) -> tuple[int, str]:
    match = _DIMENSION.match(symbol)
    if match is None:
        raise ValueError(f"dimension {symbol!r}: expected a name with an optional factor before it")
    return int(match[1] or 1), match[2]


def resolved(symbols: str, sizes: Sizes) -> tuple[int, ...]:
    """A symbolic shape at these sizes, of those of its dimensions that they have."""
    pairs = [_dimension(symbol) for symbol in symbols.split()]
    return tuple(factor * sizes[name] for factor, name in pairs if name in sizes)


def dot_error(terms: int, magnitude: Array, given: Arrays | None = None) -> Array:
    """Bound on a float32 sum of products, for any order of summation: min(n, 8 sqrt(n)) u * sum |a||b|, first order.

    n u is the worst case (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1); 8 sqrt(n)
    u is exceeded with a probability below 3e-14 (Higham and Mary, A new approach to probabilistic rounding error
    analysis, SIAM J. Sci. Comput. 41, 2019, theorem 2.4 with lambda = 8).

    `given` are a node's inputs: when they say `rounded`, sums are rounded to float16 after some of their terms. Its
    subnormal numbers may become zero, and a sum that may overflow has no bound.
    """
    factor = min(terms, 8 * math.sqrt(terms))
    if given is None or not given.get("rounded", 0):
        return np.asarray(factor * UNIT_ROUNDOFF * magnitude + underflow(magnitude, terms))
    error = factor * HALF_ROUNDOFF * magnitude + terms * HALF_SMALLEST
    return np.asarray(np.where(magnitude + error > HALF_GREATEST, np.inf, error))


def underflow(size: Array, times: Array | float = 1) -> Array:
    """Error of numbers of this size by so many products that fall below 2^-126: they are flushed, or rounded to a whole
    multiple of 2^-149. Of zeros there is none.
    """
    return np.asarray(np.where(size > 0, np.minimum(size + 2.0**-149, times * SMALLEST), 0.0))


def products(outputs: str, rows: int) -> Callable[[Sizes, Machine], Tiling]:
    """The tiling of a kernel with so many outputs a stream, of so many rows of matrices each."""
    return lambda sizes, machine: of_products(sizes[outputs], sizes["B"], rows, machine)


def check_interface(kernel: Kernel, shader: Shader) -> None:
    """Raises `ShaderError` unless `shader` takes what the kernel gives, by the same names."""
    got = [(b.name, b.index, f"{'writes' if b.writes else 'reads'} {b.dtype}") for b in shader.interface.bindings]
    ours = load(f"{kernel.name}{parted(shader.name)[1]}")
    dtypes = {binding.name: binding.dtype for binding in ours.interface.bindings}
    expected = [
        (name, index, f"{'writes' if name in kernel.written else 'reads'} {dtypes.get(name)}")
        for index, name in enumerate(kernel.shapes)
    ]
    if got != expected:
        raise ShaderError(mismatch(f"{kernel.name}: bindings", _described(expected), _described(got)))
    sizes = sorted({_dimension(symbol)[1] for symbols in kernel.shapes.values() for symbol in symbols.split()})
    offered = [f"uint32 {name}" for name in sizes] + [f"float32 {name}" for name in kernel.attributes]
    pushed = [f"{dtype} {name}" for name, dtype in shader.interface.push_dtypes.items()]
    if not set(pushed) <= set(offered):
        raise ShaderError(mismatch(f"{kernel.name}: push constants", f"some of {offered}", pushed))
    known = {**Tiling().constants, "PANEL": 1, **kernel.constants}
    constants = [name for name in shader.interface.spec if name not in known]
    if constants:
        raise ShaderError(mismatch(f"{kernel.name}: specialisation constants", f"some of {[*known]}", constants))


MAX_PUSH_BYTES = 128


def _described(bindings: list[tuple[str, int, str]]) -> str:
    return ", ".join(f"{index}: {access} {name}" for name, index, access in bindings)
