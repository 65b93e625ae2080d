"""Files that others made: each reader, given damage of every kind, reads or refuses, in stated memory and its folder.

The readers, the files to begin with and the damage are those of `tools/fuzz`.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import safetensors
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

import vkcat
from vkcat import strict_json
from vkcat.config import load_config
from vkcat.errors import InputError, ModelError, VkcatError
from vkcat.files import contents
from vkcat.model import build
from vkcat.safetensors_file import SafetensorsFile
from vkcat.shader import load
from vkcat.weights import load_weights

sys.path.insert(0, str(ROOT / "tools"))

from fuzzing import seeds
from fuzzing.judge import FindingError, judge
from fuzzing.readers import READERS

QUICK = sorted(READERS.keys() - {"glsl"})


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_valid_file_is_read(name: str, tmp_path: Path) -> None:
    for data in READERS[name].seeds():
        assert judge(READERS[name], data, tmp_path) is None


@pytest.mark.parametrize("name", QUICK)
def test_damage_is_read_or_refused(name: str, tmp_path: Path) -> None:
    reader, begin = READERS[name], READERS[name].seeds()

    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, (1 << 32) - 1))
    def damaged(seed: int) -> None:
        rng = Random(seed)
        data = rng.choice(begin)
        for _ in range(rng.choice((1, 2))):
            data = reader.damaged(data, rng)
        judge(reader, data, tmp_path)

    damaged()


CORPUS = sorted(path for path in (ROOT / "tests" / "corpus").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", CORPUS, ids=[f"{path.parent.name}-{path.name}" for path in CORPUS])
def test_what_fuzzing_found(path: Path, tmp_path: Path) -> None:
    judge(READERS[path.parent.name], path.read_bytes(), tmp_path)


@pytest.mark.long
def test_damaged_glsl_is_read_or_refused(tmp_path: Path) -> None:
    for seed in range(40):
        rng = Random(seed)
        judge(READERS["glsl"], READERS["glsl"].damaged(rng.choice(seeds.sources()), rng), tmp_path)


@pytest.mark.parametrize("name", QUICK)
def test_no_file_at_all(name: str, tmp_path: Path) -> None:
    """Empty, a folder, a device without end, and a pipe that nobody writes into."""
    reader = READERS[name]
    judge(reader, b"", tmp_path)
    if name in ("spirv", "gru_weights"):
        # Their readers here open the file themselves first.
        return
    path = tmp_path / reader.file
    for make in (path.mkdir, lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path)):
        path.rmdir() if path.is_dir() else path.unlink()
        make()
        with pytest.raises(VkcatError):
            reader.read(tmp_path)


def test_a_finding_is_one(tmp_path: Path) -> None:
    """What the judge must see: an error of another kind, a file elsewhere, memory, a warning."""
    from msgspec.structs import replace

    def elsewhere(folder: Path) -> None:
        with Path("/etc/hostname").open("rb"):
            pass

    def warned(folder: Path) -> None:
        np.float32(1e30) * np.float32(1e30)

    npy_reader = READERS["npy"]
    for read, said in (
        (lambda folder: 1 // 0, "ZeroDivisionError"),
        (elsewhere, "open /etc/hostname"),
        (lambda folder: bytearray(3 << 20), "bytes for 1"),
        (warned, "RuntimeWarning"),
    ):
        with pytest.raises(FindingError, match=said):
            judge(replace(npy_reader, read=read), b"x", tmp_path)


JSON = [
    (b'{"a": 1, "a": 2}', 'the key "a" twice'),
    (b"[NaN]", "NaN, which JSON has not"),
    (b"[-Infinity]", "-Infinity, which JSON has not"),
    (b"[1e400]", "1e400, which float64 cannot hold"),
    (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
    (b"[" * 100_000, "nested more than 64 deep"),
    (b"9" * 5000, "4300"),
    (b"\xef\xbb\xbf{}", "BOM"),
    ("{}".encode("utf-16"), "utf-8"),
    (b"{}\0", "Extra data"),
]


@pytest.mark.parametrize(("data", "message"), JSON, ids=[message for _, message in JSON])
def test_json(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json.decoded(data)


def test_json_keys_are_only_names() -> None:
    assert strict_json.decoded(b'{"__proto__": {"__class__": 1}}') == {"__proto__": {"__class__": 1}}


def _config(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**seeds.CONFIGS["tokens"], **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": {"kind": "embedding", "symbols": 1 << 31}}, "symbols: expected 1 to 16777216"),
        ({"blocks": [{"kind": "gru", "hidden": 1 << 20}]}, "hidden: expected 1 to 65536"),
        ({"blocks": [{"kind": "gru", "hidden": 1 << 16}], "depth": "plain"}, "weight_hh: expected at most 4294967295"),
        (
            {"patches": {"rows": 1, "columns": 1, "side": 1 << 16, "channels": 1 << 16}},
            "expected at most 4294967295 bytes, of any tensor",
        ),
        ({"blocks": [seeds.GRU] * 1025}, "expected at most 1024 blocks, got 1025"),
        ({"__proto__": 1}, "unknown '__proto__'"),
        ({"width": float("inf")}, "JSON in UTF-8"),
    ],
)
def test_a_configuration_too_large_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(load_config(_config(tmp_path, **changes)))


def test_zeros_take_no_memory(tmp_path: Path) -> None:
    """A bias of zeros is as long as a configuration of a few bytes says: here 192 MiB together."""
    ring = {"kind": "ring_attention", "head_width": 1024, "window": 1, "slopes": "none"}
    blocks = [{**ring, "heads": 4096 - at} for at in range(12)]
    config = load_config(_config(tmp_path, blocks=blocks, width=1))
    tracemalloc.start()
    build(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_saved_token_beyond_the_table(tmp_path: Path) -> None:
    """A step of a stream that is held reads the embedding's row of it."""
    session = vkcat.Session(seeds.model(), device="reference")
    session.save_state(tmp_path / "state")
    session.load_state(tmp_path / "state")
    data = (tmp_path / "state").read_bytes()
    with SafetensorsFile(tmp_path / "state") as file:
        begin = file.entries["token"].begin
    (tmp_path / "state").write_bytes(data[:begin] + (5).to_bytes(4, "little") + data[begin + 4 :])
    with pytest.raises(InputError, match="token: expected 0 to 4, got 5"):
        session.load_state(tmp_path / "state")


def test_weights_are_compared_before_there_is_memory_for_them(tmp_path: Path) -> None:
    """A vocabulary of 2^24 with a few bytes of weights."""
    _config(tmp_path, input={"kind": "embedding", "symbols": 1 << 24})
    (tmp_path / "model.safetensors").write_bytes(seeds.weights()[0])
    with pytest.raises(ModelError, match=r"input\.weight: expected \(16777216, 4\), got \(5, 4\)"):
        vkcat.read_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_out_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    folder = _config(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(seeds.weights()[0])
    vkcat.read_model(folder)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"a link out of the folder; copy {name} into it"):
        vkcat.read_model(folder)


def _tensors(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "product beyond 32 bits": _tensors({"a": _entry([1 << 16, 1 << 16], 0, 0)}),
    "product beyond 64 bits": _tensors({"a": _entry([1 << 32, 1 << 32], 0, 0)}),
    "many dimensions": _tensors({"a": _entry([(1 << 62)] * 5000, 0, 0)}),
    "shared bytes": _tensors({"a": _entry([1], 0, 4), "b": _entry([1], 0, 4)}, bytes(4)),
    "shared bytes beside others": _tensors({"a": _entry([1], 0, 4), "b": _entry([1], 0, 4)}, bytes(8)),
    "a hole": _tensors({"a": _entry([1], 4, 8)}, bytes(8)),
    "beyond the end": _tensors({"a": _entry([2], 0, 8)}, bytes(4)),
    "more than the header": _tensors({"a": _entry([1], 0, 4)}, bytes(8)),
    "backwards": _tensors({"a": _entry([1], 4, 0)}, bytes(4)),
    "negative": _tensors({"a": _entry([-1], 0, 4)}, bytes(4)),
    "twice": _tensors(b'{"a":%b,"a":%b}' % ((json.dumps(_entry([1], 0, 4)).encode(),) * 2), bytes(4)),
    "a long header": (1 << 62).to_bytes(8, "little") + b"{}",
    "metadata": _tensors({"__metadata__": {"a": 1}}),
    "another dtype": _tensors({"a": _entry([1], 0, 4, "OBJ")}, bytes(4)),
}


@pytest.mark.parametrize("name", list(SAFETENSORS))
def test_safetensors(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_bytes(SAFETENSORS[name])
    with pytest.raises(ValueError, match=r"\w"):
        SafetensorsFile(tmp_path / "x")


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, (1 << 32) - 1))
def test_what_is_taken_for_safetensors_is_to_the_package_as_well(tmp_path_factory: Any, seed: int) -> None:
    """The oracle is the format's own reader: names, shapes, dtypes and bytes."""
    rng = Random(seed)
    data = rng.choice([*seeds.weights(), *seeds.saved_states()])
    data = READERS["weights"].damaged(data, rng) if seed % 3 else data
    path = tmp_path_factory.getbasetemp() / "oracle"
    path.write_bytes(data)
    try:
        file = SafetensorsFile(path)
    except ValueError:
        return
    with file:
        expected = {name: (part["dtype"], part["shape"], bytes(part["data"])) for name, part in _package(data)}
        assert file.entries.keys() == expected.keys()
        for name, entry in file.entries.items():
            assert (entry.dtype, list(entry.shape)) == expected[name][:2]
            assert data[entry.begin : entry.begin + entry.nbytes] == expected[name][2]


def _package(data: bytes) -> Any:
    return safetensors.deserialize(data)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    """With a map into memory this would end the process (SIGBUS)."""
    path = tmp_path / "x"
    path.write_bytes(_tensors({"a": _entry([1 << 16], 0, 1 << 18)}, bytes(1 << 18)))
    with SafetensorsFile(path) as file:
        os.truncate(path, 1 << 17)
        with pytest.raises(ValueError, match="cut short while a was read"):
            file.array("a")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a\0b"])
def test_names_of_tensors_are_no_paths(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(_tensors({name: _entry([1], 0, 4)}, bytes(4)))
    with pytest.raises(ModelError, match="expected the 0 tensors|unknown"):
        load_weights(tmp_path, {})


FORBIDDEN = {"pickle", "marshal", "shelve", "yaml", "dill", "joblib", "torch"}


def _imported(node: ast.AST) -> set[str]:
    """Packages, by their first names."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    return {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def _faults(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        found += sorted(_imported(node) & FORBIDDEN)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            found.append(node.func.id)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.append("allow_pickle")
        # numpy.load may unpickle, and memory maps end the process when the file shrinks.
        if isinstance(node, ast.Attribute) and node.attr in ("load", "open_memmap", "memmap", "fromfile"):
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            found += [f"{name}.{node.attr}"] if name in ("np", "format") else []
    return found


def test_nothing_of_vkcat_runs_what_it_reads() -> None:
    for path in Path(vkcat.__file__).parent.rglob("*.py"):
        assert _faults(path.read_text(encoding="utf-8")) == [], path


def test_what_would_run_it_is_found() -> None:
    source = "import pickle\nfrom torch import load\neval('1')\nnp.load(x, allow_pickle=True)"
    assert sorted(_faults(source)) == ["allow_pickle", "eval", "np.load", "pickle", "torch"]


def _large(name: str) -> list[bytes]:
    """Files of a quarter of a megabyte that take much memory for their size."""
    if name in ("config", "tilings", "profile"):
        return [
            b"[" + b"{}," * 75_000 + b"{}]",
            b'{"a":[' + b"[0]," * 62_000 + b"0]}",
            b'"' + b"\xf0\x9f\x98\x80" * 62_000 + b'"',
        ]
    if name in ("weights", "state", "gru_weights"):
        many = {f"t{at}": _entry([0], 0, 0) for at in range(5_000)}
        return [_tensors(many), _tensors(b"[" + b"{}," * 75_000 + b"{}]")]
    if name == "spirv":
        head = load("add").code[:20]
        return [
            head
            + (2 << 16 | 17).to_bytes(4, "little")
            + bytes(4)
            + ((2 << 16 | 17).to_bytes(4, "little") + bytes(4)) * 31_000
        ]
    seed = READERS[name].seeds()[0]
    return [seed + bytes((1 << 18) - len(seed)), bytes(1 << 18), b"a\n" * (1 << 17)]


@pytest.mark.parametrize("name", QUICK)
def test_memory_by_size(name: str, tmp_path: Path) -> None:
    """`judge` measures the peak against the reader's multiple."""
    for data in _large(name):
        judge(READERS[name], data, tmp_path)


def test_a_file_larger_than_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    assert contents(tmp_path / "x", 10) == bytes(10)
    with pytest.raises(OSError, match="more than 9 bytes"):
        contents(tmp_path / "x", 9)
