"""wgpu-py with vkcat's shaders: buffers, a pipeline and a bind group an op, and commands encoded anew for each step.

A WebGPU command buffer can be submitted once only, so there is nothing to replay. Push constants are wgpu's immediates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import wgpu
import wgpu.backends.wgpu_native
from msgspec.structs import replace
from numpy.typing import NDArray

from benchmarks.contender import Settings
from benchmarks.naga import frozen, without_wide_products
from benchmarks.program import Call, physical_device, program
from benchmarks.scene import Scene
from vkcat.device.interface import DeviceInfo
from vkcat.errors import DeviceError, ShaderError, mismatch
from vkcat.shader import Shader

Array = NDArray[Any]

IMMEDIATES, TIMESTAMPS = "immediates", "timestamp-query"
_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def _open(device: DeviceInfo) -> Any:
    """wgpu's device of the adapter that vkcat's device is. Raises `DeviceError`."""
    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    own = [adapter for adapter in adapters if adapter.info["device"] == device.name]
    if not own:
        raise DeviceError(mismatch("wgpu", f"the adapter {device.name}", [a.info["device"] for a in adapters]))
    adapter = own[0]
    if IMMEDIATES not in adapter.features:
        raise DeviceError(mismatch(f"wgpu: {device.name}", f"the feature {IMMEDIATES}", "none"))
    limits = ("max-immediate-size", "max-storage-buffers-per-shader-stage", "max-storage-buffer-binding-size")
    return adapter.request_device_sync(
        required_features=[name for name in (IMMEDIATES, TIMESTAMPS) if name in adapter.features],
        required_limits={name: adapter.limits[name] for name in limits},
    )


class _Op:
    """A call with its pipeline and bind group."""

    def __init__(self, pipeline: Any, bindings: Any, call: Call) -> None:
        self._pipeline, self._bindings = pipeline, bindings
        self._push, self._groups = call.push, call.groups

    def encode(self, into: Any) -> None:
        into.set_pipeline(self._pipeline)
        into.set_bind_group(0, self._bindings)
        if self._push.size:
            into.set_immediates(0, self._push, 0, self._push.nbytes)
        into.dispatch_workgroups(*self._groups)


class WgpuLoop:
    """See `benchmarks.contender.Contender`. With `passes` each op has a compute pass of its own."""

    def __init__(self, scene: Scene, settings: Settings, passes: bool) -> None:
        info = physical_device(settings.device)
        self.notes: list[str] = []
        self._passes = passes
        self._tick_ns = info.timestamp_period
        # WebGPU's subgroups are an extension of its own: wgpu is given what any device runs.
        self._program = program(scene, replace(info, subgroup_arithmetic=False))
        self._device = _open(info)
        self._buffers = [self._device.create_buffer_with_data(data=w, usage=_STORAGE) for w in self._program.buffers]
        self._pipelines: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._steps = [[self._op(call) for call in step] for step in self._program.steps]
        self._position = 0
        self._queries = self._stamps = None
        if TIMESTAMPS in self._device.features:
            self._queries = self._device.create_query_set(type="timestamp", count=2)
            usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            self._stamps = self._device.create_buffer(size=16, usage=usage)

    def _op(self, call: Call) -> _Op:
        key = (call.shader.name, call.spec)
        if key not in self._pipelines:
            self._pipelines[key] = self._pipeline(call)
        pipeline, layout = self._pipelines[key]
        entries = [
            {"binding": binding.index, "resource": {"buffer": self._buffers[at]}}
            for binding, at in zip(call.shader.interface.bindings, call.buffers, strict=True)
        ]
        return _Op(pipeline, self._device.create_bind_group(layout=layout, entries=entries), call)

    def _pipeline(self, call: Call) -> tuple[Any, Any]:
        """A pipeline, and the layout of its bind group."""
        interface = call.shader.interface
        # naga looks for marks of what is only read on variables, and compilers put them on members: all is read-write.
        access = {"visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}}
        entries = [{"binding": binding.index} | access for binding in interface.bindings]
        group = self._device.create_bind_group_layout(entries=entries)
        layout = self._device.create_pipeline_layout(bind_group_layouts=[group], immediate_size=interface.push_bytes)
        stage = {"module": self._module(call.shader, call.spec), "entry_point": "main"}
        return self._device.create_compute_pipeline(layout=layout, compute=stage), group

    def _module(self, shader: Shader, spec: tuple[int, ...]) -> Any:
        """Raises `ShaderError` for a shader that naga refuses in every form."""
        try:
            return self._device.create_shader_module(code=frozen(shader.code, shader, spec))
        except wgpu.GPUError as refusal:
            reason = str(refusal).strip().splitlines()[-1].strip()
            again = without_wide_products(shader)
            if again is None:
                raise ShaderError(mismatch(shader.name, "a shader that naga accepts", reason)) from refusal
        self.notes.append(f"{shader.name}: compiled with umulExtended written out, as naga refuses it ({reason})")
        try:
            return self._device.create_shader_module(code=frozen(again, shader, spec))
        except wgpu.GPUError as refusal:
            raise ShaderError(mismatch(shader.name, "a shader that naga accepts", str(refusal))) from refusal

    @property
    def versions(self) -> Mapping[str, str]:
        native = ".".join(map(str, wgpu.backends.wgpu_native.lib_version_info))
        return {"wgpu": wgpu.__version__, "wgpu-native": native, "numpy": np.__version__}

    def _encode(self, timed: bool) -> Any:
        """One step's commands; `timed` puts them in one pass with a timestamp at each end."""
        encoder = self._device.create_command_encoder()
        ops = self._steps[self._position & 1]
        if self._passes and not timed:
            for op in ops:
                one = encoder.begin_compute_pass()
                op.encode(one)
                one.end()
        else:
            ends = {"query_set": self._queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
            whole = encoder.begin_compute_pass(timestamp_writes=ends if timed else None)
            for op in ops:
                op.encode(whole)
            whole.end()
        if timed:
            encoder.resolve_query_set(self._queries, 0, 2, self._stamps, 0)
        return encoder.finish()

    def _step(self, timed: bool = False) -> Array:
        self._device.queue.submit([self._encode(timed)])
        history = np.frombuffer(self._device.queue.read_buffer(self._buffers[self._program.history]), np.uint32)
        tokens = self._program.tokens_at(history, self._position)
        self._position += 1
        return tokens

    def generate(self, count: int) -> Array:
        return np.stack([self._step() for _ in range(count)], axis=1)

    def logits(self) -> Array:
        at = self._program.logits[1 - (self._position & 1)]
        return self._program.logits_in(np.frombuffer(self._device.queue.read_buffer(self._buffers[at]), np.uint32))

    def device_ns(self, count: int) -> float | None:
        """By wgpu's own timestamps, as naga's shaders check bounds and are not quite those that vkcat runs."""
        if self._queries is None:
            return None
        times = []
        for _ in range(count):
            self._step(timed=True)
            begin, end = np.frombuffer(self._device.queue.read_buffer(self._stamps), np.uint64)
            times.append(float(end - begin) * self._tick_ns)
        return float(np.mean(times))

    def close(self) -> None:
        """wgpu releases what nothing refers to."""


def open_contender(scene: Scene, settings: Settings, *, passes: bool) -> WgpuLoop:
    return WgpuLoop(scene, settings, passes)
