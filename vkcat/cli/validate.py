"""`vkcat validate`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec.structs import replace

from vkcat.cli import options
from vkcat.cli.console import console
from vkcat.cli.files import write_json, write_text
from vkcat.device.backends import open_device
from vkcat.errors import InputError, mismatch
from vkcat.kernel import check_interface
from vkcat.model import build, fused_model, with_rows
from vkcat.ops import OPS
from vkcat.shader import Shader, parted, replacements
from vkcat.stored import read_model
from vkcat.validate import Result, report, validate_model, validate_op

MODEL_BATCH, MODEL_ROWS = 3, 5


@click.command()
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option("--model", type=click.Path(path_type=Path, file_okay=False), help="Also check a model's steps.")
@click.option(
    "--shader",
    "replacements",
    multiple=True,
    metavar="OP=FILE",
    help="Check this GLSL or SPIR-V file in place of ours.",
)
@options.device
@options.backend
@options.schedule
@options.fuse
@options.json_file
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to a file as JUnit XML."
)
def validate(
    ops: tuple[str, ...],
    model: Path | None,
    replacements: tuple[str, ...],
    device: str | None,
    backend: str,
    schedule: str,
    fuse: bool,
    json_path: Path | None,
    junit: Path | None,
) -> None:
    """Check shaders against the float64 reference: all ops, or those named, and a model's steps, fused and not, one and
    several at a time.

    Buffers are filled with NaN and guarded, so an output that is not written, or a write beside one, fails. Exits 1
    when a check failed or nothing was checked.
    """
    options.check_results(json_path, junit)
    shaders = _replacements(replacements)
    names = _names(ops, shaders)
    opened = open_device(backend, device)
    results: list[Result] = []
    try:
        out = console()
        out.print(f"{opened.backend} on {opened.info.name}")
        for name in names:
            own = {key: shader for key, shader in shaders.items() if parted(key)[0] == name}
            results += validate_op(opened, OPS[name], own, schedule)
        if model is not None:
            stored = read_model(model)
            built = with_rows(build(stored.config, MODEL_BATCH), MODEL_ROWS)
            joined = fused_model(opened.info, built)
            plans = {"": joined, "unfused ": built} if fuse and joined.graphs != built.graphs else {"": built}
            for plan, planned in plans.items():
                found = validate_model(opened, planned, stored.weights, schedule, shaders)
                results += [replace(result, case=plan + result.case) for result in found]
        if json_path:
            write_json(json_path, report.as_json(results, opened))
        if junit:
            write_text(junit, report.as_junit(results, opened))
    finally:
        opened.close()
    out.print(report.table(results))
    for line in report.bounds(results):
        out.print(line)
    for line in report.failures(results):
        click.echo(f"failed: {line}", err=True)
    failed = sum(not result.passed for result in results)
    click.echo(f"{len(results)} checked, {failed} failed")
    if failed or not results:
        sys.exit(1)


def _replacements(values: tuple[str, ...]) -> dict[str, Shader]:
    shaders: dict[str, Shader] = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or name not in OPS:
            raise InputError(mismatch("--shader", f"OP=FILE with an op of {', '.join(OPS)}", repr(value)))
        if name in shaders:
            raise InputError(mismatch(f"--shader {name}", "one file", "another one"))
        made = replacements(name, Path(path))
        for shader in made.values():
            check_interface(OPS[name], shader)
        shaders |= made
    return shaders


def _names(ops: tuple[str, ...], shaders: dict[str, Shader]) -> list[str]:
    unknown = [name for name in ops if name not in OPS]
    if unknown:
        raise InputError(mismatch("validate", f"ops of {', '.join(OPS)}", ", ".join(unknown)))
    if ops:
        return list(dict.fromkeys([*ops, *(parted(key)[0] for key in shaders)]))
    if shaders:
        return list(dict.fromkeys(parted(key)[0] for key in shaders))
    return list(OPS)
