"""The g2p-en model against g2p_en's own inference, and its steps against the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import load_tool

import vkcat
from vkcat.device.interface import Device
from vkcat.model import build
from vkcat.validate import validate_model

agree = load_tool("agree")


def _agree(device: Device, g2p: Path, count: int) -> None:
    words = agree.draw(count)
    assert len(set(words)) == count
    ties, wrong = agree.differences(agree.oracle(), words, agree.run(g2p, device, words))
    assert wrong == []
    assert len(ties) <= 2, ties


@pytest.mark.long
def test_2000_words_of_cmudict_as_g2p_en(device: Device, g2p: Path) -> None:
    _agree(device, g2p, 2000)


def test_200_words_of_cmudict_as_g2p_en(device: Device, g2p: Path) -> None:
    _agree(device, g2p, 200)


def test_100_words_of_cmudict_as_g2p_en_in_the_reference(g2p: Path) -> None:
    words = agree.draw(100)
    ties, wrong = agree.differences(agree.oracle(), words, agree.run(g2p, None, words))
    assert wrong == []
    assert ties == []


def test_a_word_of_the_longest_length(vulkan_device: Device, g2p: Path) -> None:
    session = vkcat.load(g2p, vulkan_device)
    word = "abracadabra" * 23
    assert session.transduce([word]) == [agree.oracle().predict(word)]
    session.close()


def test_unknown_characters_are_the_models_unk(vulkan_device: Device, g2p: Path) -> None:
    session = vkcat.load(g2p, vulkan_device)
    for word in ("caf\u00e9", "it's", "\U0001f600", "a b"):
        assert session.transduce([word]) == [agree.oracle().predict(word)]
    session.close()


@pytest.mark.parametrize("schedule", ["eager", "batched", "replay"])
def test_every_intermediate_of_a_step(device: Device, g2p: Path, schedule: str) -> None:
    stored = vkcat.read_model(g2p)
    results = list(validate_model(device, build(stored.config, 3), stored.weights, schedule))
    assert len(results) == 4 * 2 + 4 * 4 + 1
    assert [result.problem for result in results if not result.passed] == []
