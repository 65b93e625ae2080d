"""The command line. Each command has a module of its own."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import TextIO

import click

from vkcat import __version__
from vkcat.errors import VkcatError

COMMANDS = {
    "devices": "devices",
    "doctor": "doctor",
    "export": "exporting",
    "import": "importing",
    "init": "init",
    "profile": "profile",
    "run": "run",
    "show": "show",
    "tune": "tune",
    "validate": "validate",
}
"""Each command's module, imported when the command is asked for: none waits for what the others need."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"vkcat.cli.{COMMANDS[cmd_name]}")
        # `import` is a word of Python's own.
        command: click.Command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        return command


EPILOG = (
    "Environment: VKCAT_PIPELINE_CACHE is the folder for compiled pipelines, VKCAT_TILINGS the file that tune writes;"
    " either may be off. See docs/backends.md."
)


@click.group(
    epilog=EPILOG, cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="vkcat")
def cli() -> None:
    """Run, profile and validate small models on any Vulkan device."""


def main() -> None:
    """Entry point: errors that a user can act on are one line and exit code 2, warnings one line."""
    warnings.showwarning = _show_warning
    try:
        cli()
    except OSError as error:
        subject = "writing the output" if error.filename is None else str(error.filename)
        click.echo(f"vkcat: error: {_one_line(f'{subject}: {error.strerror}')}", err=True)
        sys.exit(2)
    except MemoryError:
        click.echo("vkcat: error: memory: expected enough for the sizes that were asked for, got too little", err=True)
        sys.exit(2)
    except VkcatError as error:
        click.echo(f"vkcat: error: {_one_line(str(error))}", err=True)
        sys.exit(2)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of Python's form, which has a line of code as well."""
    del category, filename, lineno, file, line
    click.echo(f"vkcat: warning: {_one_line(str(message))}", err=True)


def _one_line(message: str) -> str:
    """Names from files and arguments may hold line ends and control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message)
