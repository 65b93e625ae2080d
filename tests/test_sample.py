"""Sampling: Philox against its authors' known answers, the drawn tokens against the probabilities they should have."""

from __future__ import annotations

import numpy as np
import pytest

from vkcat.device.interface import Device
from vkcat.executor import Executor
from vkcat.graph import Graph, Role, Tensor
from vkcat.ops.gates import STEP
from vkcat.ops.sample import gumbel, philox

# Random123's kat_vectors of philox4x32-10: counter, key, result.
KNOWN = [
    ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_its_authors_known_answers(counter: list[int], key: tuple[int, int], result: list[int]) -> None:
    assert philox(np.array([counter], np.uint32), key)[0].tolist() == result


def test_gumbel_noise_has_its_mean_and_variance() -> None:
    noise = gumbel(7, 3, 5, 200_000)
    # Euler's constant and pi^2 / 6, within five standard errors.
    assert abs(noise.mean() - 0.5772157) < 5 * np.sqrt(1.6449 / 200_000)
    assert abs(noise.var() - 1.6449341) < 5 * np.sqrt(4.4 * 1.6449**2 / 200_000)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 3)])
def test_tokens_have_the_probabilities_of_the_softmax(vulkan_device: Device, temperature: float, top_k: int) -> None:
    logits = np.array([1.0, 0.0, 2.0, -1.0, 0.5], np.float32)
    batch, steps = 500, 8
    graph = Graph("draw")
    given = {"seed": np.uint32, "stream": np.uint32, "temperature": np.float32, "top_k": np.uint32, "mode": np.uint32}
    inputs = {name: Tensor(name, (batch,), np.dtype(dtype).name, Role.INPUT) for name, dtype in given.items()}
    shapes = {"token": (batch,), "position": (batch,), "history": (batch, 8)}
    kept = {name: Tensor(name, shape, "uint32", Role.MEMORY) for name, shape in shapes.items()}
    rows = Tensor("logits", (batch, 5), "float32", Role.INPUT)
    graph.add("sample", "sample", logits=rows, **inputs, **kept)
    graph.output(kept["history"])
    executor = Executor(vulkan_device, [graph])
    executor.write(rows, np.tile(logits, (batch, 1)))
    values = {"seed": 11, "temperature": temperature, "top_k": top_k, "mode": STEP}
    for name, value in values.items():
        executor.write(inputs[name], np.full(batch, value, given[name]))
    executor.write(inputs["stream"], np.arange(batch, dtype=np.uint32))
    for tensor in kept.values():
        executor.write(tensor, np.zeros(tensor.shape, np.uint32))
    for _ in range(steps):
        executor.step("draw")
    counts = np.bincount(executor.read(kept["history"]).reshape(-1), minlength=5)
    executor.close()
    allowed = np.argsort(-logits)[: top_k or 5]
    expected = np.zeros(5)
    expected[allowed] = np.exp(logits[allowed] / temperature)
    expected *= batch * steps / expected.sum()
    assert counts[expected == 0].sum() == 0
    live = expected > 0
    chi_square = ((counts - expected)[live] ** 2 / expected[live]).sum()
    # The 99.99th percentile with four degrees of freedom; the draws are the same every time.
    assert chi_square < 23.5, counts
