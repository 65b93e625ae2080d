"""`vkcat run` of a model over whole sequences: its outputs, a row a step."""

from __future__ import annotations

from contextlib import closing

from numpy.typing import ArrayLike

from vkcat.cli.stream import Request, print_vectors
from vkcat.config import StreamConfig
from vkcat.errors import InputError, mismatch
from vkcat.images import load_numbers
from vkcat.runner import Runner
from vkcat.sequences import Sequences
from vkcat.stored import StoredModel
from vkcat.text import Alphabet

READ = ("--prompt", "--features")


def run_sequences(model: StoredModel, request: Request, runner: Runner) -> None:
    """Print what the model makes of the prompt or of the features. Raises `InputError`."""
    assert isinstance(model.config, StreamConfig)
    stack = model.config.stack
    if unfit := [name for name in request.given() if name not in READ]:
        raise InputError(mismatch("run", "--prompt or --features, as it reads whole sequences", ", ".join(unfit)))
    wanted = READ[0] if stack.input is not None else READ[1]
    if request.given() != [wanted]:
        raise InputError(mismatch("run", wanted, ", ".join(request.given()) or "none"))
    given: ArrayLike
    if stack.input is not None:
        given = Alphabet(stack.input, "prompt", "input").encode(request.prompt or "")
    else:
        assert request.features is not None
        given = load_numbers(request.features)
    with closing(Sequences(model, runner=runner)) as sequences:
        print_vectors(sequences.run(given)[0], request.as_json)
