"""The most a device does of what kernels are made of, measured in the same run as the steps.

Three ceilings: bytes read a second, multiply-adds a second, and the GPU time of a dispatch that does nothing. Of the
first two, several variants of a shader are tried and the best is kept, since drivers differ in what they like.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from msgspec import Struct

from vkcat.device.interface import Buffer, Device, Memory, Slice, Words
from vkcat.device.timestamps import REMEDY
from vkcat.errors import DeviceError, mismatch
from vkcat.graph import Graph, Role
from vkcat.profile.floors import timed
from vkcat.profile.samples import CONTROL, Series, series
from vkcat.profile.spread import Spread, quantiles, spread
from vkcat.shader import load

READ, MULTIPLY_ADD, DISPATCH = "read", "multiply-add", "dispatch"
LOCAL = 64
GROUPS = (2, 8, 32, 128, 512, 2048, 8192)
LOADS, CHAINS = (1, 4, 8), (1, 2, 4, 8)
"""Variants: workgroups, vec4 loads an invocation has under way, and independent sums of multiply-adds."""

TARGET_NS = 1e6
"""A dispatch is made to take about so long, so that what it costs to begin one hardly counts."""

MOST_WAITED_NS = 1e8
"""A dispatch that takes the host this long, and by timestamps far less, is not made longer: where they stand still it
would grow until a watchdog ends it."""

LEAST_BYTES = 1 << 16
TRIES, KEPT, FALLEN, MOST_FALLS = 3, 3, 0.9, 2
MOST_TURNS = 1 << 16


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


NEVER = _bits(-7.0)


class Ceilings(Struct, frozen=True):
    """By GPU timestamps: GB (10^9 bytes) a second read, again and again, from `working_set_bytes`, which is the size of
    the step's weights; 10^9 operations a second of multiply-adds in registers, each two; microseconds of an empty
    dispatch. The variants say which form of the shader was the best."""

    backend: str
    working_set_bytes: int
    read_gbytes_per_s: Spread
    read_variant: str
    multiply_add_gflops: Spread
    multiply_add_variant: str
    dispatch_us: Spread


class _Variant(Struct, frozen=True):
    """A shader with its specialisation and workgroups; `amount` is what it does in one turn: bytes or operations."""

    name: str
    shader: str
    spec: tuple[int, ...]
    groups: int
    slices: tuple[Slice, ...]
    amount: int

    def push(self, turns: int) -> Words:
        """Values by the names in the shaders. Four turns of `multiply_add` are written out; its sums go to 2."""
        if self.shader == "stream_read":
            return np.array([self.slices[0].size // 16, turns, NEVER], np.uint32)
        if self.shader == "multiply_add":
            return np.array([4 * turns, _bits(0.5), _bits(1.0), NEVER], np.uint32)
        return np.zeros(0, np.uint32)


class _Timer:
    """One variant, recorded to run for a number of turns."""

    def __init__(self, device: Device, variant: _Variant, turns: int) -> None:
        self.variant, self.turns = variant, turns
        self.times: list[float] = []
        self.waited_ns = 0
        groups = (variant.groups, 1, 1)
        with ExitStack() as made:
            dispatch = device.dispatch(
                variant.name, load(variant.shader), variant.slices, variant.push(turns), variant.spec, groups
            )
            made.callback(device.release, dispatch)
            self._recording = device.recording(timestamps=True)
            made.callback(self._recording.close)
            self._recording.record([dispatch])
            self._made = made.pop_all()

    def nanoseconds(self) -> float:
        """By the device's clock; `waited_ns` is by the host's."""
        self.waited_ns = timed(self._recording)
        return self._recording.kernel_ns()[0]

    def rate(self, nanoseconds: float) -> float:
        """What it does a nanosecond: 10^9 a second."""
        return self.turns * self.variant.amount / max(nanoseconds, 1.0)

    def rates(self, warmup: int) -> list[float]:
        return [self.rate(nanoseconds) for nanoseconds in self.times[warmup:]]

    def close(self) -> None:
        self._made.close()


class CeilingProbe:
    """The best few variants of a device with timestamps, found when it is made; `sample` times them, and the best of
    those samples counts."""

    def __init__(self, device: Device, working_set: int) -> None:
        self._device = device
        limits = device.info.limits
        most = min(limits.max_storage_buffer_range, limits.max_memory_allocation_size)
        self._nbytes = min(max(working_set, LEAST_BYTES), most) // 16 * 16
        with ExitStack() as made:
            zeros, result = self._buffer(made, self._nbytes), self._buffer(made, 256)
            out = Slice(result, 0, 256)
            empty = _Timer(device, _Variant("floor", "floor", (), 1, (out,), 0), 1)
            made.callback(empty.close)
            same = _fitted(device, _multipliers(out)[CHAINS.index(4)][GROUPS.index(32)])
            made.callback(same.close)
            self._timers = {
                READ: _best(device, _readers(Slice(zeros, 0, self._nbytes), out), made),
                MULTIPLY_ADD: _best(device, _multipliers(out), made),
                DISPATCH: [empty],
                CONTROL: [same],
            }
            self._made = made.pop_all()

    def _buffer(self, made: ExitStack, nbytes: int) -> Buffer:
        buffer = self._device.buffer(nbytes, Memory.DEVICE)
        made.callback(buffer.close)
        buffer.write(np.zeros(nbytes // 4, np.uint32))
        return buffer

    def sample(self, count: int) -> None:
        """Time each variant `count` times, in turn."""
        for timers in self._timers.values():
            for _ in range(count):
                for timer in timers:
                    timer.times.append(timer.nanoseconds())

    def ceilings(self, warmup: int) -> Ceilings:
        read, multiply_add = self._best(READ, warmup), self._best(MULTIPLY_ADD, warmup)
        [empty] = self._timers[DISPATCH]
        return Ceilings(
            backend=self._device.backend,
            working_set_bytes=self._nbytes,
            read_gbytes_per_s=quantiles(read.rates(warmup)),
            read_variant=read.variant.name,
            multiply_add_gflops=quantiles(multiply_add.rates(warmup)),
            multiply_add_variant=multiply_add.variant.name,
            dispatch_us=spread(empty.times[warmup:]),
        )

    def _best(self, name: str, warmup: int) -> _Timer:
        return max(self._timers[name], key=lambda timer: quantiles(timer.rates(warmup)).median)

    def control(self, warmup: int) -> Series:
        """A million multiply-adds, always by the same variant: the best one may be another in another run."""
        [same] = self._timers[CONTROL]
        times = [2e6 / rate for rate in same.rates(warmup)]
        return series(CONTROL, self._device.backend, "a million multiply-adds", times)

    def close(self) -> None:
        self._made.close()


def weight_bytes(graph: Graph) -> int:
    """Bytes of the weights that a step may read."""
    return sum(tensor.nbytes for tensor in graph.tensors() if tensor.role is Role.WEIGHT)


def _readers(zeros: Slice, result: Slice) -> list[list[_Variant]]:
    """By loads, from few workgroups up, as long as all invocations have something to read; the smallest always."""
    families = [
        [
            _Variant(
                f"{loads} vec4 an invocation and turn, {groups} workgroups of {LOCAL}",
                "stream_read",
                (loads,),
                groups,
                (zeros, result),
                zeros.size,
            )
            for groups in GROUPS
            if groups * LOCAL * loads * 16 <= zeros.size
        ]
        for loads in LOADS
    ]
    return [family for family in families if family]


def _multipliers(result: Slice) -> list[list[_Variant]]:
    """By sums, from few workgroups up; a turn is four steps of each component."""
    return [
        [
            _Variant(
                f"{chains} vec4 sums an invocation, {groups} workgroups of {LOCAL}",
                "multiply_add",
                (chains,),
                groups,
                (result,),
                2 * 4 * 4 * chains * groups * LOCAL,
            )
            for groups in GROUPS
        ]
        for chains in CHAINS
    ]


def _best(device: Device, families: list[list[_Variant]], made: ExitStack) -> list[_Timer]:
    """The variants of the greatest rates; with more workgroups a family is followed until it has fallen off twice: once
    it may before caches that several workgroups share come to help."""
    best: list[tuple[float, _Timer]] = []
    for family in families:
        own, falls = 0.0, 0
        for variant in family:
            timer = _fitted(device, variant)
            rate = timer.rate(float(np.median([timer.nanoseconds() for _ in range(TRIES)])))
            best = sorted([*best, (rate, timer)], key=lambda pair: -pair[0])
            if len(best) > KEPT:
                best.pop()[1].close()
            own = max(own, rate)
            falls = falls + 1 if rate < FALLEN * own else 0
            if falls == MOST_FALLS:
                break
    for _, timer in best:
        made.callback(timer.close)
    return [timer for _, timer in best]


def _fitted(device: Device, variant: _Variant) -> _Timer:
    """With as many turns as take about TARGET_NS, by the time of one and then of more: the shortest of a few, as a
    disturbance must not pass for work."""
    turns = 1
    while True:
        timer = _Timer(device, variant, turns)
        tries = [(timer.nanoseconds(), timer.waited_ns) for _ in range(TRIES)]
        took, waited = (max(min(times), 1.0) for times in zip(*tries, strict=True))
        if took > TARGET_NS / 2 or turns == MOST_TURNS:
            return timer
        timer.close()
        if waited > MOST_WAITED_NS:
            expected = f"about the {waited / 1e3:.1f} us that the host waited"
            raise DeviceError(mismatch("timestamps of a dispatch", expected, f"{took / 1e3:.1f} us", REMEDY))
        turns = min(max(int(turns * TARGET_NS / took), turns + 1), 16 * turns, MOST_TURNS)
