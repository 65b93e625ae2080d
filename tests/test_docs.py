"""What the documentation shows in Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT

from vkcat.device.interface import Device
from vkcat.ops import OPS
from vkcat.shader import replacements
from vkcat.validate.ops import validate_op


# Examples say nothing of a device, and there are CPUs alone here.
@pytest.mark.filterwarnings("ignore:device. expected a GPU")
@pytest.mark.parametrize("page", ["models.md"])
def test_examples_run(lavapipe: Device, page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 10
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_a_shader_of_ones_own_passes(device: Device, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (shader,) = re.findall(r"^```glsl\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    file = tmp_path / "mine.comp"
    file.write_text(shader)
    results = list(validate_op(device, OPS["add"], replacements("add", file)))
    assert len(results) == len(OPS["add"].cases)
    assert [result.problem for result in results if not result.passed] == []


def test_every_kind_has_a_section() -> None:
    from vkcat.config.blocks import BLOCKS, DEPTHS

    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for kind in BLOCKS:
        assert f"\n### {kind.kind}\n" in text
    for depth in DEPTHS:
        assert f"| `{depth.kind}` |" in text
