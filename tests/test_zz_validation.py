"""Collected last: over everything before, the validation layer was active and said nothing."""

from __future__ import annotations

from conftest import MESSAGES, absent

from vkcat.device.interface import Device
from vkcat.device.layers import active_layers


def test_validation_layer_was_active_and_silent(lavapipe: Device) -> None:
    if MESSAGES is None:
        absent("the validation layer")
    assert lavapipe.info.name
    assert "khronos_validation" in active_layers()
    said = MESSAGES.text()
    assert said == "", said[:4000]
