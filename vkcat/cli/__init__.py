"""The command line. Each command has a module of its own."""

from __future__ import annotations

import sys

import click

from vkcat import __version__
from vkcat.cli.devices import devices
from vkcat.cli.exporting import export
from vkcat.cli.importing import import_
from vkcat.cli.init import init
from vkcat.cli.profile import profile
from vkcat.cli.run import run
from vkcat.cli.show import show
from vkcat.cli.validate import validate
from vkcat.errors import VkcatError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="vkcat")
def cli() -> None:
    """Run, profile and validate small models on any Vulkan device."""


for command in (devices, import_, export, init, show, run, validate, profile):
    cli.add_command(command)


def main() -> None:
    """Entry point: errors that a user can act on are one line and exit code 2."""
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


def _one_line(message: str) -> str:
    """Names from files and arguments may hold line ends and control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message)
