"""A GRU over whole sequences: layers, directions and lengths, by torch's or ONNX's conventions."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import ArrayLike, NDArray

from vkcat.device.interface import Device
from vkcat.errors import InputError, mismatch
from vkcat.runner import Runner
from vkcat.sequences.conventions import (
    Weights,
    initial_states,
    onnx_cells,
    onnx_output,
    step_counts,
    steps_first,
    torch_cells,
)
from vkcat.sequences.stages import run_layers

Array = NDArray[Any]

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "both": (False, True), "bidirectional": (False, True)}


class GruOutput(NamedTuple):
    """y: the last layer's state at every step. h: every layer's and direction's last state."""

    y: Array
    h: Array


def gru(
    x: ArrayLike,
    w_ih: Weights,
    w_hh: Weights,
    b_ih: Weights | None = None,
    b_hh: Weights | None = None,
    h0: ArrayLike | None = None,
    *,
    convention: str = "torch",
    direction: str = "forward",
    lengths: ArrayLike | None = None,
    reset: str | None = None,
    batch_first: bool = False,
    device: Device | str | int | None = None,
    backend: str = "vulkan",
    schedule: str = "replay",
) -> GruOutput:
    """A GRU over whole sequences: T steps, B sequences, I inputs, H hidden units, L layers, D directions.

    `convention="torch"` (torch.nn.GRU: gates r, z, n; reset after):

    | argument | shape |
    |---|---|
    | x | (T, B, I), or (B, T, I) with `batch_first`; (T, I) for one sequence |
    | w_ih, w_hh, b_ih, b_hh | (3H, I), (3H, H), (3H), (3H); I is D * H from layer 1 on |
    | h0, h | (L * D, B, H) |
    | y | (T, B, D * H), or (B, T, D * H) |

    Weights are lists of L * D arrays in torch's order (l0, l0_reverse, l1, ...), or one array each.

    `convention="onnx"` (ONNX GRU: gates z, r, h; reset before; `linear_before_reset=1` is `reset="after"` and
    `layout=1` is `batch_first`):

    | argument | shape |
    |---|---|
    | x | (T, B, I), or (B, T, I) |
    | w_ih (W), w_hh (R) | (D, 3H, I), (D, 3H, H) |
    | b_ih (B) | (D, 6H), both biases; or (D, 3H) with b_hh (D, 3H) |
    | h0, h | (D, B, H), or (B, D, H) |
    | y | (T, D, B, H), or (B, T, D, H) |

    `direction` is forward, reverse or both (torch has no reverse alone: it takes D = 1 list entries a layer). `lengths`
    (B) are the steps of each sequence; past them y is zero and h stays. Everything is computed in float32.

    `device` is an open device, an index, part of a name, or "reference" for the float64 reference; by default the best
    device, opened once and kept. Equations: `vkcat.ops.gru_cell`, `vkcat.ops.gru_gates`.

    Raises `ShapeError` or `InputError` naming the argument, `DeviceError` from the device.
    """
    if convention not in ("torch", "onnx"):
        raise InputError(mismatch("gru: convention", "'torch' or 'onnx'", repr(convention)))
    if direction not in _DIRECTIONS:
        raise InputError(mismatch("gru: direction", "'forward', 'reverse' or 'both'", repr(direction)))
    onnx = convention == "onnx"
    reset = reset or ("before" if onnx else "after")
    if reset not in ("after", "before"):
        raise InputError(mismatch("gru: reset", "'after' or 'before'", repr(reset)))
    reversals = _DIRECTIONS[direction]
    read = onnx_cells if onnx else torch_cells
    cells = read(len(reversals), w_ih, w_hh, b_ih, b_hh)
    sequence = steps_first(x, batch_first)
    unbatched = sequence.ndim == 2
    if unbatched:
        sequence = sequence[:, None]
    ends = step_counts("gru", lengths, *sequence.shape[:2])
    layers = [cells[at : at + len(reversals)] for at in range(0, len(cells), len(reversals))]
    states = initial_states(h0, cells, sequence.shape[1], swap=onnx and batch_first, unbatched=unbatched)
    y, h = run_layers(sequence, layers, states, ends, reversals, reset, Runner("gru", device, backend, schedule))
    if onnx:
        return GruOutput(*onnx_output(y, h, len(reversals), batch_first))
    if unbatched:
        return GruOutput(y[:, 0], h[:, 0])
    return GruOutput(y.swapaxes(0, 1) if batch_first else y, h)
