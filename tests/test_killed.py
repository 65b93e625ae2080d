"""Processes that are killed while they write, full disks, and two that write at once: a file is whole, old or new."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from stream_models import CONFIGS, stored

from vkcat import states, tilings
from vkcat.device.vulkan import cache_file
from vkcat.errors import InputError, ModelError
from vkcat.files import ABANDONED_S, replaced
from vkcat.graph import Role, Tensor
from vkcat.stored import read_model
from vkcat.weights import save_model

KEPT = {"h": Tensor("h", (2, 4096), "float32", Role.STATE)}
DRIVER = cache_file.Driver(1, 2, 3, bytes(16))

WRITERS = {
    "state": "states.save(folder / 'file', 'model', {'h': np.full((2, 4096), at, np.float32)},"
    " np.full((2, 3), at, np.float32), np.zeros(2, bool))",
    "tilings": "tilings.keep(folder / 'file', 'device', {f'op {at % 7}': Tiling(1, 2, 1, 32)})",
    "pipeline cache": "cache_file.write(folder / 'file.bin', driver, head + bytes([at % 256]) * 65536)",
    "model": "save_model(folder / 'model', CONFIGS['gru'], weights[at % 5])",
}
PROGRAM = """
import resource, struct, sys
from pathlib import Path
import numpy as np
from stream_models import CONFIGS, stored
from vkcat import states, tilings
from vkcat.device.vulkan import cache_file
from vkcat.device.vulkan.cache_file import Driver
from vkcat.tiling import Tiling
from vkcat.weights import save_model

folder, times, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
driver, head = Driver(1, 2, 3, bytes(16)), struct.pack("<IIII16s", 32, 1, 1, 2, bytes(16))
weights = [stored(CONFIGS["gru"], seed).weights for seed in range(5)]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("begun", flush=True)
at = 0
while at < times:
    at += 1
    WRITE
"""


def _writer(what: str, folder: Path, times: int = 1 << 30, limit: int = 1 << 30) -> subprocess.Popen[str]:
    """A process that writes again and again, files of at most so many bytes; it has begun."""
    program = PROGRAM.replace("WRITE", WRITERS[what])
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), str(times), str(limit)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def _check_whole(what: str, folder: Path) -> None:
    """What is there is one of the writes, none of another's parts."""
    if what == "state":
        saved = states.read(folder / "file", "model", KEPT, (2, 3), np.float32, {})
        assert np.unique(saved.kept["h"]).tolist() == np.unique(saved.outputs).tolist()
    elif what == "tilings":
        assert tilings.read(folder / "file").keys() == {"device"}
    elif what == "pipeline cache":
        assert len(set(cache_file.read(folder / "file.bin", DRIVER)[32:])) == 1
    elif (folder / "model" / "config.json").exists():
        found = read_model(folder / "model").weights
        assert any(
            all(np.array_equal(array, found[name]) for name, array in stored(CONFIGS["gru"], seed).weights.items())
            for seed in range(5)
        )


@pytest.mark.parametrize("what", WRITERS)
def test_a_killed_process_leaves_what_is_whole(tmp_path: Path, what: str) -> None:
    delays = np.random.default_rng().uniform(0.005, 0.05, 3)
    _writer(what, tmp_path, times=1).communicate()
    for delay in delays:
        process = _writer(what, tmp_path)
        time.sleep(delay)
        process.kill()
        process.communicate()
        _check_whole(what, tmp_path)
    # Another goes on, whatever was left.
    after = _writer(what, tmp_path, times=1)
    assert after.communicate()[1] == ""
    _check_whole(what, tmp_path)


@pytest.mark.parametrize("what", ["state", "pipeline cache", "model"])
def test_a_full_disk_leaves_the_old(tmp_path: Path, what: str) -> None:
    _writer(what, tmp_path, times=1).communicate()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    process = _writer(what, tmp_path, times=2, limit=2048)
    said = process.communicate()[1].splitlines()[-1]
    assert process.returncode == 1
    assert said.startswith(("vkcat.errors.InputError: ", "vkcat.errors.ModelError: ")), said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("what", ["tilings", "pipeline cache"])
def test_processes_that_write_one_file_at_once(tmp_path: Path, what: str) -> None:
    processes = [_writer(what, tmp_path, times=40) for _ in range(3)]
    for process in processes:
        assert process.communicate()[1] == ""
        assert process.returncode == 0
    _check_whole(what, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin" if what == "pipeline cache" else "file"]


def test_what_a_killed_process_left_goes_in_time(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (".file.123.0", ".file.124.0", ".filed.125.0"))
    for path in (old, new, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (time.time() - 2 * ABANDONED_S,) * 2)
    with replaced(tmp_path / "file") as temporary:
        temporary.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, other.name, "file"])


def test_a_folder_of_weights_alone_is_no_model_and_can_become_one(tmp_path: Path) -> None:
    model = stored(CONFIGS["gru"])
    save_model(tmp_path / "model", CONFIGS["gru"], model.weights)
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(ModelError):
        read_model(tmp_path / "model")
    save_model(tmp_path / "model", CONFIGS["gru"], model.weights)
    assert read_model(tmp_path / "model").weights.keys() == model.weights.keys()


def test_a_table_of_tilings_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a folder that can be made"):
        tilings.keep(tmp_path / "file" / "below" / "table", "device", {})
