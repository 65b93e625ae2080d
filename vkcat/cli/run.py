"""`vkcat run`."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat.cli import options
from vkcat.cli.stream import Request, run_stream
from vkcat.config import TransducerConfig
from vkcat.errors import InputError, mismatch
from vkcat.runner import opened
from vkcat.stored import read_model

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@options.model
@click.argument("words", nargs=-1)
@click.option("--prompt", metavar="TEXT", help="Text to go on from.")
@click.option("--image", type=FILE, help="Image to read before the prompt: PNG (with the extra images), or .npy.")
@click.option("--features", type=FILE, help="Vectors to read before the prompt: .npy of (steps, size).")
@click.option("--tokens", type=click.IntRange(0), help="Tokens to draw; else max_tokens of config.json.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=click.IntRange(0), default=0, show_default=True, help="Draw among so many; 0: all.")
@click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), default=0, show_default=True, help="Of the draws.")
@click.option("--state", type=FILE, help="Go on from this file when it is there, and write it at the end.")
@click.option("--telemetry", type=FILE, help="Write what each step tells of itself, one JSON object a line.")
@options.device
@options.backend
@options.schedule
@options.fuse
@options.submit_limit
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def run(
    model: Path,
    words: tuple[str, ...],
    prompt: str | None,
    image: Path | None,
    features: Path | None,
    tokens: int | None,
    temperature: float,
    top_k: int,
    seed: int,
    state: Path | None,
    telemetry: Path | None,
    device: str | None,
    backend: str,
    schedule: str,
    fuse: bool,
    submit_limit_ms: float,
    as_json: bool,
) -> None:
    """Run a model.

    An encoder-decoder takes words, or the lines of standard input as they come, and prints word<TAB>output. Any other
    model goes on from a prompt, an image, features or a saved state, and streams what it draws; one that reads whole
    sequences, in reverse or both ways, prints its output at each step of a prompt or of features. `--device reference`
    computes in NumPy, in float64, without a device.
    """
    stored = read_model(model)
    request = Request(prompt, image, features, tokens, temperature, top_k, seed, state, telemetry, as_json)
    if isinstance(stored.config, TransducerConfig):
        if unfit := request.given():
            raise InputError(mismatch(f"run {model}", "words, as it is an encoder-decoder", ", ".join(unfit)))
    elif words:
        raise InputError(mismatch(f"run {model}", "--prompt, as it is no encoder-decoder", f"the word {words[0]!r}"))
    with opened("run", device, backend, schedule, fuse=fuse, submit_limit_ms=submit_limit_ms) as runner:
        if not device and runner.info is not None and runner.info.kind == "cpu":
            # Apart from the output: perhaps a GPU's driver is missing, and all that shows it is time.
            click.echo(f"vkcat: device: {runner.info.name}, a CPU, as no GPU was found; see `vkcat devices`", err=True)
        # Imported by the kind of model: a stream starts without what the others need.
        if isinstance(stored.config, TransducerConfig):
            from vkcat.cli.words import transduce

            transduce(stored, words, runner, as_json)
        elif not stored.config.stack.streams:
            from vkcat.cli.sequences import run_sequences

            run_sequences(stored, request, runner)
        else:
            run_stream(stored, request, runner)
