"""How a comparison with the reference is judged: errors in four measures, NaN, Inf, and numbers that were flushed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from vkcat.cli import cli
from vkcat.device.interface import Device
from vkcat.kernel import Case, Kernel
from vkcat.ops import OPS
from vkcat.shader import SOURCES, Shader, load_file
from vkcat.validate import Result
from vkcat.validate.ops import validate_case
from vkcat.validate.report import as_json
from vkcat.validate.result import compare

NAN, INF = float("nan"), float("inf")
DENORMAL = 2.0**-130


def _compared(got: Any, reference: Any, bound: Any = 0.0, dtype: Any = np.float32) -> Result:
    expected = np.atleast_1d(np.asarray(reference, np.float64))
    with np.errstate(over="ignore"):
        given = np.atleast_1d(np.asarray(got)).astype(dtype)
    return compare("op", "case", "y", given, expected, np.broadcast_to(np.float64(bound), expected.shape), "why")


def test_measures_by_hand() -> None:
    result = _compared([1.0, 2.0 + 2.0**-22, 0.0, -4.0], [1.0 + 2.0**-24, 2.0, 0.0, -4.0], 1e-6)
    assert result.passed
    assert result.max_absolute == 2.0**-22
    assert result.max_relative == 2.0**-23
    # Units in the last place: 2^-23 at 1, 2^-22 at 2; half a unit there, a whole one here.
    assert result.max_ulp == 1
    squares = (1 + 2.0**-24) ** 2 + 4 + 16
    assert result.nmse == pytest.approx((2.0**-48 + 2.0**-44) / squares, rel=1e-12)


@pytest.mark.parametrize(
    ("got", "reference", "ulp"),
    [
        (1.0, 1.0, 0),
        (1.0 - 2.0**-24, 1.0, 0.5),
        (np.nextafter(np.float32(3e38), np.float32(3.1e38)), float(np.float32(3e38)), 1),
        (3 * 2.0**-149, 2.0**-149, 2),
        (2.0**-126, 0.0, 1 << 23),
    ],
)
def test_units_in_the_last_place(got: float, reference: float, ulp: float) -> None:
    assert _compared(got, reference, 1.0 if ulp < 1 << 22 else 2.0**-126).max_ulp == ulp


def test_indices_are_counted_in_whole_numbers() -> None:
    result = _compared([3, 7], [3, 5], dtype=np.uint32)
    assert not result.passed
    assert result.max_ulp == result.max_absolute == 2


@pytest.mark.parametrize(
    ("got", "nmse"), [([0.0, 0.0], 0.0), ([0.0, 1e-30], INF), ([0.0, NAN], INF), ([0.0, INF], INF)]
)
def test_an_all_zero_reference(got: list[float], nmse: float) -> None:
    """No comparison with NaN makes it pass, and no division by zero either."""
    result = _compared(got, [0.0, 0.0])
    assert result.nmse == nmse
    assert result.passed == (nmse == 0)


@pytest.mark.parametrize("bound", [0.0, 1.0, INF, NAN])
@pytest.mark.parametrize("reference", [0.0, 1.0, INF, -INF])
def test_nan_passes_nowhere_but_where_the_reference_is_nan(reference: float, bound: float) -> None:
    result = _compared([1.0, NAN], [1.0, reference], [1.0, bound])
    assert not result.passed
    assert result.max_absolute == result.max_relative == result.nmse == result.max_ulp == INF


@pytest.mark.parametrize("got", [0.0, 1.0, INF, -INF])
def test_where_the_reference_is_nan_nothing_else_passes(got: float) -> None:
    assert not _compared([1.0, got], [1.0, NAN], [1.0, INF]).passed


def test_the_same_nan_or_inf_has_no_error() -> None:
    result = _compared([NAN, INF, -INF, 2.0], [NAN, INF, -INF, 2.0], [NAN, NAN, 0.0, 0.0])
    assert result.passed
    assert result.max_absolute == result.max_relative == result.nmse == result.max_ulp == 0


@pytest.mark.parametrize("bound", [0.0, 1.0, INF, NAN])
def test_inf_has_a_sign(bound: float) -> None:
    assert not _compared(-INF, INF, bound).passed
    assert not _compared(3e38, INF, bound).passed


def test_inf_stands_for_what_float32_cannot_hold() -> None:
    assert _compared(INF, 3.5e38, 1e30).passed
    assert not _compared(-INF, 3.5e38, 1e30).passed
    assert not _compared(INF, 3.3e38, 1e30).passed
    # Without a bound, as where partial sums may overflow, either may come.
    assert _compared(-INF, 3.3e38, INF).passed


@pytest.mark.parametrize("bound", [NAN, -1.0])
def test_a_bound_that_is_none_passes_nothing(bound: float) -> None:
    assert not _compared(1.0, 1.0, bound).passed


def test_small_numbers_may_be_flushed_and_nothing_else() -> None:
    assert _compared([0.0, -0.0, DENORMAL], [DENORMAL, -DENORMAL, DENORMAL]).passed
    assert not _compared(0.0, 2.0**-126).passed
    assert not _compared(-DENORMAL, DENORMAL).passed
    assert not _compared(DENORMAL, 0.0).passed


WRITTEN = "x[row + d] * scale * gain[d];"
NAN_FOR_ZEROS = "x[row + d] == 0.0 ? uintBitsToFloat(0x7FC00001u) : x[row + d] * scale * gain[d];"
ZEROS_FOR_NAN = "isnan(scale) ? 0.0 : x[row + d] * scale * gain[d];"


def _rms_norm(folder: Path, written: str) -> dict[str, Shader]:
    text = (SOURCES / "rms_norm.comp").read_text()
    assert WRITTEN in text
    file = folder / "rms_norm.comp"
    file.write_text(text.replace(WRITTEN, written))
    return {"rms_norm": load_file("rms_norm", file)}


def _given(x: np.ndarray[Any, Any]) -> Kernel:
    gain = np.ones(x.shape[1], np.float32)
    return structs.replace(OPS["rms_norm"], inputs=lambda rng, case: {"x": x, "gain": gain})


CASE = Case({"B": 2, "D": 5}, attributes={"eps": 1e-6})


def test_a_shader_that_writes_nan_for_zeros_fails(device: Device, tmp_path: Path) -> None:
    kernel = _given(np.zeros((2, 5), np.float32))
    (good,) = validate_case(device, kernel, CASE)
    assert good.passed
    assert good.nmse == good.max_ulp == 0
    (bad,) = validate_case(device, kernel, CASE, _rms_norm(tmp_path, NAN_FOR_ZEROS))
    assert "10 of 10 elements beyond their bound" in bad.problem
    assert bad.nmse == bad.max_absolute == bad.max_ulp == INF


def test_a_shader_must_write_nan_where_the_reference_does(device: Device, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    x[1, 2] = np.nan
    kernel = _given(x)
    (good,) = validate_case(device, kernel, CASE)
    assert good.problem == ""
    assert 0 < good.nmse < 1e-12
    (bad,) = validate_case(device, kernel, CASE, _rms_norm(tmp_path, ZEROS_FOR_NAN))
    assert "5 of 10 elements beyond their bound; first at [1, 0]: expected nan" in bad.problem


def test_validate_tells_all_measures(device_name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["validate", "rms_norm", "--device", device_name, "--json", str(tmp_path / "r.json")]
    )
    assert done.exit_code == 0
    for name in ("max abs", "max rel", "NMSE", "max ULP", "bound"):
        assert name in done.output
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    for result in results:
        assert 0 <= result["max_absolute"] <= result["bound"]
        assert 0 <= result["nmse"] < 1e-12
        assert 0 <= result["max_ulp"] < 100
    assert max(result["max_ulp"] for result in results) > 0.5


def test_json_has_null_for_what_is_infinite(vulkan_device: Device) -> None:
    (values,) = as_json([_compared(NAN, 0.0)], vulkan_device)["results"]
    assert values["nmse"] is None
    assert values["max_ulp"] is None
    json.dumps(values, allow_nan=False)
