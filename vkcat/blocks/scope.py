"""What blocks need besides the stream: the graph, and the tensors that all graphs of a model share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from vkcat.graph import Graph, Role, Tensor
from vkcat.kernel import PRECISIONS

Array = NDArray[Any]
Initial = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws a weight's values when a model is made from its configuration alone."""


class Shared(Struct):
    """Weights, constants and states by name. Asked for again, they are the same tensors.

    `precision` is one of vkcat.kernel.PRECISIONS. `constants` are weights that no file holds, `initials` how each
    weight is drawn, `kept` what goes from step to step.
    """

    batch: int
    precision: str = PRECISIONS[0]
    weights: dict[str, Tensor] = field(default_factory=dict)
    initials: dict[str, Initial] = field(default_factory=dict)
    constants: dict[Tensor, Array] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    _scratch: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)
    _constants: dict[str, Tensor] = field(default_factory=dict)

    def weight(self, name: str, *shape: int, initial: Initial) -> Tensor:
        return self._weight(name, shape, "float32", initial)

    def matrix(self, name: str, *shape: int, initial: Initial) -> Tensor:
        """A weight that the model's precision may make float16."""
        return self._weight(name, shape, "float32" if self.precision == PRECISIONS[0] else "float16", initial)

    def _weight(self, name: str, shape: tuple[int, ...], dtype: str, initial: Initial) -> Tensor:
        if name not in self.weights:
            self.weights[name] = Tensor(name, shape, dtype, Role.WEIGHT)
            self.initials[name] = initial
        return self.weights[name]

    def constant(self, name: str, values: Array) -> Tensor:
        if name not in self._constants:
            tensor = Tensor(name, values.shape, str(values.dtype), Role.WEIGHT, zeros=not values.any())
            self._constants[name] = tensor
            self.constants[tensor] = values
        return self._constants[name]

    def zeros(self, *shape: int) -> Tensor:
        # One number seen everywhere: a configuration of a few bytes may ask for any shape.
        return self.constant(f"zeros({', '.join(map(str, shape))})", np.broadcast_to(np.float32(0), shape))

    def state(self, name: str, *shape: int, dtype: str = "float32") -> Tensor:
        """What is carried from step to step, for each stream."""
        return self._once(self.kept, name, shape, dtype, Role.STATE)

    def memory(self, name: str, *shape: int, dtype: str = "float32") -> Tensor:
        """What is updated in place and kept from step to step, for each stream."""
        return self._once(self.kept, name, shape, dtype, Role.MEMORY)

    def scratch(self, name: str, *shape: int) -> Tensor:
        """What several ops of a step update in place; nothing of it is kept."""
        key = name, shape
        if key not in self._scratch:
            self._scratch[key] = Tensor(name, shape, "float32", Role.MEMORY)
        return self._scratch[key]

    def _once(self, known: dict[str, Tensor], name: str, shape: tuple[int, ...], dtype: str, role: Role) -> Tensor:
        if name not in known:
            known[name] = Tensor(name, (self.batch, *shape), dtype, role)
        return known[name]


class Scope(Struct, frozen=True):
    """One graph, its mode input (B), and what it shares. `eps` is the norms'.

    `lengths` (B) is of a graph that reads T steps at once, rows of each step's streams: how many are a stream's.
    """

    graph: Graph
    mode: Tensor
    shared: Shared
    eps: float
    lengths: Tensor | None = None

    @property
    def reading(self) -> dict[str, Tensor]:
        """What tells an op with a state which streams read: of one step the mode, of several the lengths too."""
        return {"mode": self.mode} if self.lengths is None else {"mode": self.mode, "lengths": self.lengths}

    def linear(
        self, name: str, x: Tensor, width: int, *, initial: Initial | None = None, bias: Initial | None = None
    ) -> Tensor:
        """x (B, K) through a weight (width, K), and a bias (width) when told how that is drawn."""
        shared, inputs = self.shared, x.shape[-1]
        w = shared.matrix(f"{name}.weight", width, inputs, initial=initial or fan_in(inputs))
        b = shared.zeros(width) if bias is None else shared.weight(f"{name}.bias", width, initial=bias)
        (y,) = self.graph.add("linear", name, x=x, w=w, bias=b)
        return y

    def rms_norm(self, name: str, x: Tensor) -> Tensor:
        gain = self.shared.weight(f"{name}.weight", x.shape[-1], initial=ones)
        (y,) = self.graph.add("rms_norm", name, {"eps": self.eps}, x=x, gain=gain)
        return y

    def add(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        (y,) = self.graph.add("add", name, a=a, b=b)
        return y


def uniform(limit: float) -> Initial:
    return lambda rng, shape: rng.uniform(-limit, limit, shape)


def fan_in(width: int) -> Initial:
    """torch.nn.Linear's and torch.nn.GRU's way: uniform within 1 / sqrt(width)."""
    return uniform(width**-0.5)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    del rng
    return np.ones(shape)


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    del rng
    return np.zeros(shape)
