"""What a contender is, and the list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from benchmarks.scene import Scene

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """`device` is as for `vkcat.open_device`; `threads` is how many a processor's kernels may use.

    With 0 lavapipe computes in the thread of its queue: no dispatch wakes another. Libraries then take one.
    """

    device: str | None
    threads: int

    @property
    def library_threads(self) -> int:
        return max(self.threads, 1)


class Contender(Protocol):
    """One way to run a scene, begun at its start."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the packages and drivers that do the work."""
        ...

    @property
    def notes(self) -> list[str]:
        """What had to be done differently, in sentences."""
        ...

    def generate(self, count: int) -> Array:
        """Go on by `count` steps. Each step's tokens reach the host before this ends: (B, count)."""
        ...

    def logits(self) -> Array:
        """(B, V) after the last step."""
        ...

    def device_ns(self, count: int) -> float | None:
        """Nanoseconds of a step by the device's own clock, as a mean of `count`; None where it has none."""
        ...

    def close(self) -> None: ...


class Open(Protocol):
    def __call__(self, scene: Scene, settings: Settings, **options: Any) -> Contender: ...


@dataclass(frozen=True)
class Entry:
    """A contender by name: the module that has its `open_contender`, what must be importable there, and what it is.

    `kind` says what its kernels are: "fused" or "unfused" (vkcat's shaders, as vkcat joins them or each op by itself),
    or "cpu" or "cuda" (a library's own).
    """

    name: str
    module: str
    needs: tuple[str, ...]
    kind: str
    what: str
    options: Mapping[str, Any] = field(default_factory=dict)


def _session(backend: str, schedule: str, *needs: str, fuse: bool = True) -> Entry:
    return Entry(
        f"vkcat {backend} {schedule}{'' if fuse else ', unfused'}",
        "session",
        needs,
        "fused" if fuse else "unfused",
        f"`vkcat.Session`, backend `{backend}`, schedule `{schedule}`{'' if fuse else ', each op by itself'}",
        {"backend": backend, "schedule": schedule, "fuse": fuse},
    )


def _device_time(kind: str) -> Entry:
    what = "what each further step adds to one long submission: kernels and barriers, with no host between them"
    return Entry(f"device time, {kind}", "device_time", (), kind, what, {"fuse": kind == "fused"})


DEVICE_TIMES = {kind: _device_time(kind) for kind in ("fused", "unfused")}
"""Not contenders: the part of a step that none with these shaders can be without."""

CONTENDERS = (
    _session("vulkan", "eager"),
    _session("vulkan", "batched"),
    _session("vulkan", "replay"),
    _session("vulkan", "unrolled"),
    _session("vulkan", "replay", fuse=False),
    _session("vulkan", "unrolled", fuse=False),
    _session("kompute", "eager", "kp"),
    _session("kompute", "batched", "kp"),
    _session("kompute", "replay", "kp"),
    Entry(
        "kompute loop",
        "kompute_loop",
        ("kp",),
        "unfused",
        "Kompute as its README and examples use it: for each op a new sequence, `record`, `eval`",
        {"recorded": False},
    ),
    Entry(
        "kompute loop, recorded",
        "kompute_loop",
        ("kp",),
        "unfused",
        "the same with each op's sequence recorded once and evaluated again each step",
        {"recorded": True},
    ),
    Entry(
        "wgpu, a pass an op",
        "wgpu_loop",
        ("wgpu",),
        "unfused",
        "wgpu-py: each step encodes a compute pass for each op, submits once, and reads the tokens back",
        {"passes": True},
    ),
    Entry(
        "wgpu, one pass",
        "wgpu_loop",
        ("wgpu",),
        "unfused",
        "the same with all ops in one compute pass",
        {"passes": False},
    ),
    Entry("torch", "torch_model", ("torch",), "cpu", "torch modules on the processor, eager", {"device": "cpu"}),
    Entry("torch cuda", "torch_model", ("torch",), "cuda", "the same on CUDA: cuDNN's GRU", {"device": "cuda"}),
    Entry(
        "onnxruntime",
        "onnx_model",
        ("onnx", "onnxruntime"),
        "cpu",
        "a step as an ONNX graph on the processor, states bound in place",
    ),
)
