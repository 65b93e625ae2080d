"""A fused kernel's reference, made of its parts', so that no formula is written again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vkcat.kernel import Array, Arrays, Part


def composed(parts: Sequence[Part], written: Sequence[str]) -> Callable[[Arrays], dict[str, Array]]:
    """The parts' references one after the other; of all that they make, what is `written`."""

    def reference(t: Arrays) -> dict[str, Array]:
        values = dict(t)
        for part in parts:
            values |= run_part(part, values)
        return {name: values[name] for name in written}

    return reference


def run_part(part: Part, values: Arrays) -> dict[str, Array]:
    """What a part makes of the fused kernel's values so far, by the fused kernel's names."""
    given = dict(values) | part_inputs(part, values)
    return {part.outer(name): array for name, array in part.kernel.reference(given).items()}


def part_inputs(part: Part, values: Arrays) -> dict[str, Array]:
    """A part's inputs by its own names, zeros where the fused kernel has none."""
    given = {name: values[part.outer(name)] for name in part.kernel.shapes if part.outer(name) in values}
    sizes = part.kernel.sizes({name: array.shape for name, array in given.items()})
    return given | {name: np.zeros(part.kernel.shape(name, sizes)) for name in part.zeros}
