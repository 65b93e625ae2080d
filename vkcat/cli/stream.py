"""`vkcat run` of a model of one stream: what it reads, then what it draws, as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.cli import options
from vkcat.config import StreamConfig, TokenOutput
from vkcat.errors import InputError, mismatch
from vkcat.files import replaced
from vkcat.images import load_image, load_numbers
from vkcat.runner import Runner
from vkcat.session import Session
from vkcat.stored import StoredModel
from vkcat.telemetry import Record
from vkcat.text import Alphabet


class Request(Struct, frozen=True):
    """What the command line asks of a model of one stream."""

    prompt: str | None
    image: Path | None
    features: Path | None
    tokens: int | None
    temperature: float
    top_k: int
    seed: int
    state: Path | None
    telemetry: Path | None
    as_json: bool

    def given(self) -> list[str]:
        """The options that only such a model takes and that were given."""
        values = {
            "--prompt": self.prompt,
            "--image": self.image,
            "--features": self.features,
            "--tokens": self.tokens,
            "--temperature": self.temperature or None,
            "--top-k": self.top_k or None,
            "--seed": self.seed or None,
            "--state": self.state,
            "--telemetry": self.telemetry,
        }
        return [name for name, value in values.items() if value is not None]


def run_stream(model: StoredModel, request: Request, runner: Runner) -> None:
    """Read what there is to read, print what the model makes of it, and write the state."""
    assert isinstance(model.config, StreamConfig)
    stack = model.config.stack
    alphabet = Alphabet(stack.input, "prompt", "input") if stack.input is not None else None
    # All that can be wrong with the request is found before the device works.
    options.check_results(request.state, request.telemetry)
    image = load_image(request.image) if request.image else None
    features = load_numbers(request.features) if request.features else None
    ids = _prompt_ids(request, alphabet)
    going_on = request.state is not None and request.state.exists()
    if image is None and features is None and ids is None and not going_on:
        given = "--prompt, --image, --features or a --state that is there"
        raise InputError(mismatch("run", given, "none of them"))
    with _telemetry(request.telemetry) as on_step, closing(Session(model, runner=runner, on_step=on_step)) as session:
        if going_on and request.state:
            session.load_state(request.state)
        vectors: list[NDArray[Any]] = []
        if image is not None:
            vectors.append(session.read_image(image))
        if features is not None:
            vectors.append(session.read_features(features)[0])
        if ids is not None:
            vectors.append(session.prefill([ids]))
        if not isinstance(stack.output, TokenOutput):
            for outputs in vectors:
                print_vectors(outputs, request.as_json)
        if isinstance(stack.output, TokenOutput) and alphabet is not None:
            _print_tokens(session, alphabet, stack.output, request)
        elif request.tokens:
            raise InputError(mismatch("--tokens", "a model that reads and gives tokens", "one that does not"))
        if request.state:
            session.save_state(request.state)


@contextmanager
def _telemetry(path: Path | None) -> Iterator[Callable[[Record], None] | None]:
    """What writes each step's record to the file, which appears when all are there."""
    if path is None:
        yield None
        return
    with replaced(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield lambda record: print(json.dumps(record), file=file)


def _prompt_ids(request: Request, alphabet: Alphabet | None) -> list[int] | None:
    if request.prompt is None:
        return None
    if alphabet is None:
        raise InputError(mismatch("--prompt", "a model that reads tokens", "one that does not"))
    return alphabet.encode(request.prompt)


def _print_tokens(session: Session, alphabet: Alphabet, output: TokenOutput, request: Request) -> None:
    """Stream the text, or with --json print the tokens at the end."""
    writer = alphabet.writer()
    end = alphabet.symbols.index(output.end) if output.end is not None else None
    drawn: list[int] = []
    text = ""
    count = output.max_tokens if request.tokens is None else request.tokens
    sampling: dict[str, Any] = {"temperature": request.temperature, "top_k": request.top_k, "seed": request.seed}
    for token in session.tokens(count, **sampling):
        drawn.append(int(token[0]))
        if drawn[-1] == end:
            break
        piece = writer.write(drawn[-1:])
        text += piece
        if not request.as_json:
            click.echo(piece, nl=False)
    rest = writer.end()
    if request.as_json:
        shown = {"prompt": request.prompt, "tokens": drawn, "text": text + rest}
        click.echo(json.dumps(shown, ensure_ascii=False))
    elif count:
        click.echo(rest)


def print_vectors(outputs: NDArray[Any], as_json: bool) -> None:
    for row in outputs.astype(np.float32):
        click.echo(json.dumps(row.tolist()) if as_json else "\t".join(f"{number:.9g}" for number in row))
