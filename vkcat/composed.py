"""A fused kernel's reference, made of its parts', so that no formula is written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vkcat.kernel import Array, Arrays, Part, Sizes, resolved


def composed(parts: Sequence[Part], written: Sequence[str]) -> Callable[[Arrays], dict[str, Array]]:
    """The parts' references one after the other; of all that they make, what is `written`."""

    def reference(t: Arrays) -> dict[str, Array]:
        values = dict(t)
        for part in parts:
            values |= run_part(part, values)
        return {name: values[name] for name in written}

    return reference


def composed_operations(
    parts: Sequence[Part], shapes: Mapping[str, str]
) -> Callable[[Sizes, Mapping[str, float]], int]:
    """The parts' operations together, at the sizes of the fused kernel with these shapes."""

    def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
        known = {name: resolved(symbols, sizes) for name, symbols in shapes.items()}
        count = 0
        for part in parts:
            kernel = part.kernel
            inputs = {name: known[part.outer(name)] for name in kernel.shapes if part.outer(name) in known}
            own = kernel.sizes(inputs)
            count += kernel.operations(own, attributes)
            known |= {part.outer(name): kernel.shape(name, own) for name in kernel.outputs}
        return count

    return operations


def run_part(part: Part, values: Arrays) -> dict[str, Array]:
    """What a part makes of the fused kernel's values so far, by the fused kernel's names."""
    given = dict(values) | part_inputs(part, values)
    return {part.outer(name): array for name, array in part.kernel.reference(given).items()}


def part_inputs(part: Part, values: Arrays) -> dict[str, Array]:
    """A part's inputs by its own names, zeros where the fused kernel has none."""
    given = {name: values[part.outer(name)] for name in part.kernel.shapes if part.outer(name) in values}
    sizes = part.kernel.sizes({name: array.shape for name, array in given.items()})
    return given | {name: np.zeros(part.kernel.shape(name, sizes)) for name in part.zeros}
