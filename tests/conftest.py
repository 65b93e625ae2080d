"""Two software drivers with different limits, both backends, and the validation layer over all of it.

The loader reads its environment when an instance is made, so it is set here, before any test. Validation messages are
collected; `test_zz_validation.py`, which goes last, reads them.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest

from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.importers import g2p_en
from vkcat.weights import save_model

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / "tools"
SWIFTSHADER = ROOT / ".cache" / "swiftshader" / "vk_swiftshader_icd.json"
LAVAPIPE = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
LAYER = Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json")
IN_CI = os.environ.get("CI") == "true"

DRIVERS = {"lavapipe": "llvmpipe", "swiftshader": "SwiftShader"}
HAS_KOMPUTE = importlib.util.find_spec("kp") is not None
# kp needs numpy below 2: only CI's second environment, with numpy 2, does without it.
assert HAS_KOMPUTE or not IN_CI or int(np.__version__.split(".")[0]) >= 2, "kp is missing in CI"


def _use_both_drivers() -> None:
    files = [str(path) for path in (*LAVAPIPE, SWIFTSHADER) if path.is_file()]
    os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = os.pathsep.join(files)
    os.environ.pop("VK_LOADER_DRIVERS_SELECT", None)


def load_tool(name: str) -> ModuleType:
    """A Python script of tools/, as a module."""
    if str(TOOLS) not in sys.path:
        sys.path.insert(0, str(TOOLS))
    loader = SourceFileLoader(name, str(TOOLS / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _use_validation() -> Any:
    """Core and synchronisation validation of every Vulkan call in this process, of either backend."""
    if not LAYER.is_file():
        return None
    folder = tempfile.mkdtemp(prefix="vkcat-validation-")
    messages = load_tool("with_validation").Messages(Path(folder))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(messages.close)
    os.environ.update(messages.variables)
    return messages


def _use_own_cache() -> None:
    """A pipeline cache of these tests' own, in place of the user's."""
    folder = tempfile.mkdtemp(prefix="vkcat-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["VKCAT_PIPELINE_CACHE"] = folder
    # What a user has measured is not what is tested.
    os.environ["VKCAT_TILINGS"] = "off"


_use_both_drivers()
_use_own_cache()
MESSAGES = _use_validation()


def plain_environment(**changes: str) -> dict[str, str]:
    """The environment of a process that is timed, or must have no layers: drivers as installed."""
    gone = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_INSTANCE_LAYERS", "VK_LAYER_SETTINGS_PATH")
    return {key: value for key, value in os.environ.items() if key not in gone} | changes


def absent(what: str) -> NoReturn:
    """Skip for want of something that `tools/setup --tests` provides with CI=true; there it must be."""
    assert not IN_CI, f"{what} is missing in CI"
    pytest.skip(f"{what} is not here; CI=true tools/setup --tests provides it")


def name_of(driver: str) -> str:
    """A part of the name of a driver's device, as `--device` takes it."""
    if driver == "swiftshader" and not SWIFTSHADER.is_file():
        absent("SwiftShader")
    return DRIVERS[driver]


def opened(driver: str, backend: str = "vulkan") -> Device:
    """A driver's device, for who asked to close."""
    if backend == "kompute" and not HAS_KOMPUTE:
        pytest.skip("kp is not installed")
    return open_device(backend, name_of(driver))


@pytest.fixture(scope="session", params=[f"{d}-{b}" for d in DRIVERS for b in ("vulkan", "kompute")])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Every driver by every backend."""
    driver, backend = request.param.split("-")
    with closing(opened(driver, backend)) as one:
        yield one


@pytest.fixture(scope="session", params=list(DRIVERS))
def vulkan_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Every driver by the default backend."""
    with closing(opened(request.param)) as one:
        yield one


@pytest.fixture(params=list(DRIVERS))
def device_name(request: pytest.FixtureRequest) -> str:
    """Every driver's device, as `--device` names it."""
    return name_of(request.param)


@pytest.fixture(scope="session", params=list(DRIVERS))
def both_backends(request: pytest.FixtureRequest) -> Iterator[list[Device]]:
    """One driver by all backends that are installed."""
    both = [opened(request.param, backend) for backend in ("vulkan", "kompute") if backend == "vulkan" or HAS_KOMPUTE]
    yield both
    for one in both:
        one.close()


@pytest.fixture(scope="session")
def lavapipe() -> Iterator[Device]:
    with closing(opened("lavapipe")) as one:
        yield one


@pytest.fixture(scope="session")
def g2p(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The imported g2p-en model."""
    folder = tmp_path_factory.mktemp("models") / "g2p-en"
    save_model(folder, *g2p_en.read_checkpoint(g2p_en.find_checkpoint()))
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--half", choices=("first", "second"), help="one half of the tests: tools/test runs both at once")


def _in_first_half(item: pytest.Item) -> bool:
    """What runs on SwiftShader but for the longest of it takes about as long as all of the rest."""
    return "swiftshader" in item.name and "100000_steps" not in item.name


def _reads_messages(item: pytest.Item) -> bool:
    return item.path.name == "test_zz_validation.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What reads the validation log goes last, in each half: each process has a log of its own."""
    items.sort(key=_reads_messages)
    half = config.getoption("half")
    if half is not None:
        kept = [item for item in items if _reads_messages(item) or _in_first_half(item) == (half == "first")]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
