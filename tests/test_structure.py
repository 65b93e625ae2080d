"""The shape of the code: layers, one name everywhere, valid SPIR-V, and generated parts that are up to date."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from conftest import ROOT, absent

import vkcat
from vkcat import glsl
from vkcat.kernel import MAX_PUSH_BYTES
from vkcat.ops import OPS
from vkcat.shader import SOURCES, exists, load
from vkcat.spirv import GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC, SHADER
from vkcat.validate.ops import case_shader

PACKAGE = Path(vkcat.__file__).parent
INCLUDE = SOURCES / "include"
SHADERS = sorted(f"{path.stem}{suffix}" for path in SOURCES.glob("*.comp") for suffix in glsl.variants(path, INCLUDE))

# From the ground up; a module may import from its own layer and those before it.
LAYERS = [
    ["errors", "glsl", "tiling", "usercache"],
    ["spirv", "files", "strict_json", "arrays", "safetensors_file", "npy", "config"],
    ["shader"],
    ["kernel", "device"],
    ["composed"],
    ["ops"],
    ["graph"],
    ["blocks", "plan", "fusion", "sequencing", "tilings"],
    ["parameters"],
    ["model", "weights", "schedules", "command_lists", "words"],
    ["executor", "reference", "stored", "states", "summary", "presets"],
    ["runner", "text", "images", "telemetry", "flights"],
    ["chunks", "session", "transducer", "sequences", "load", "importers", "export"],
    ["validate", "profile"],
    ["tune", "doctor"],
    ["cli"],
    ["__init__", "__main__"],
]


def _layer(module: str) -> int:
    """Layer of `vkcat.a.b` by its first part; the package itself is on top, as it re-exports."""
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else "__init__"
    return next(at for at, names in enumerate(LAYERS) if name in names)


def _modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(("vkcat", *(part for part in parts if part != "__init__")))] = path
    return found


def _without_type_checking(tree: ast.Module) -> ast.Module:
    """What is imported for annotations alone is not imported when the program runs."""
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return tree


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(_without_type_checking(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vkcat":
            # `from vkcat import glsl` imports a module; `from vkcat import __version__` a name of the package.
            names += [f"vkcat.{a.name}" if node.module == "vkcat" else node.module for a in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] == "vkcat"]
    return [name for name in names if name != "vkcat.__version__"]


@pytest.mark.parametrize("module", sorted(_modules()))
def test_imports_point_down(module: str) -> None:
    for name in _imports(_modules()[module]):
        assert _layer(name) <= _layer(module), f"{module} imports {name}, which is above it"


def test_imports_have_no_cycle() -> None:
    """Every module can come after those it imports; a package's own list of its parts aside."""
    modules = {name: path for name, path in _modules().items() if path.name != "__init__.py"}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in done or name not in modules:
            return
        assert name not in trail, " -> ".join((*trail, name))
        for imported in _imports(modules[name]):
            visit(imported, (*trail, name))
        done.add(name)

    for module in modules:
        visit(module, ())
    assert done == modules.keys()


def test_one_name_everywhere() -> None:
    shaders = {path.stem for path in SOURCES.glob("*.comp")}
    assert shaders == OPS.keys() | {"floor", "stream_read", "multiply_add"}
    for name, kernel in OPS.items():
        assert kernel.name == name
        assert (PACKAGE / "ops" / f"{name}.py").is_file()
        assert load(name).name == name


@pytest.mark.parametrize("name", SHADERS)
def test_shader_fits_any_device(name: str) -> None:
    interface = load(name).interface
    x, y, z = interface.local_size
    assert x * y * z <= 128
    assert interface.shared_bytes <= 16 << 10
    assert interface.push_bytes <= MAX_PUSH_BYTES
    optional = (GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC) if name.endswith(glsl.SUBGROUP) else ()
    assert interface.capabilities == (SHADER, *optional), "no other feature"


@pytest.mark.parametrize("name", SHADERS)
def test_shader_is_valid_spirv(name: str, tmp_path: Path) -> None:
    if glsl.find_tool("spirv-val") is None:
        absent("spirv-val")
    file = tmp_path / "shader.spv"
    file.write_bytes(load(name).code)
    glsl.check_file(file, name)


def test_no_module_is_long() -> None:
    long = {path.name: n for path in PACKAGE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 400}
    assert not long


def test_docs_name_no_file_that_is_gone() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for word in text.replace("`", " ").split():
            name = word.strip(".,;:()")
            if name.startswith(("vkcat/", "shaders/", "tools/", "tests/", "docs/")) and not set(name) & set("*<>NX{"):
                assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_readme_counts_the_checks() -> None:
    """`vkcat validate --model` of the README: every written tensor of every case, with and without arithmetic in
    subgroups where there are both, and the g2p-en model's 25 rows."""
    checks = 25
    for kernel in OPS.values():
        ways = [1 + exists(f"{case_shader(kernel, case)}{glsl.SUBGROUP}") for case in kernel.every_case]
        checks += sum(ways) * len(kernel.written)
    assert f"{checks} checked, 0 failed" in (ROOT / "README.md").read_text()


@pytest.mark.long
def test_compiling_all_leaves_only_what_has_a_source(tmp_path: Path) -> None:
    (tmp_path / "renamed.spv").write_bytes(b"old")
    glsl.compile_all(SOURCES, tmp_path)
    wanted = {
        f"{path.stem}{variant}.spv" for path in SOURCES.glob("*.comp") for variant in glsl.variants(path, INCLUDE)
    }
    assert {path.name for path in tmp_path.glob("*.spv")} == wanted
