"""The blocks a stack is made of, and the policies between them: sizes and choices, nothing else.

Letters as in docs/models.md; each class says which block of `vkcat/blocks/` it configures by its `kind`.
"""

from __future__ import annotations

from typing import ClassVar

from vkcat.config.fields import Part, choice, flag, number, size
from vkcat.errors import ModelError, mismatch

MOST_CHOSEN = 16
MOST_HEADS = 4096
MOST_SOURCES = 256
WIDEST_HEAD = 1024
WIDEST_EXPERT = 2048
REVERSE = "_reverse"


class BlockPart(Part, frozen=True):
    """A block, as nothing else needs to know more of it."""

    wide: ClassVar[tuple[str, ...]] = ()
    """Sizes that grow with the width of the stream, where a sweep changes that."""

    @property
    def reads_rows(self) -> bool:
        """Whether the block can read several steps at once, rows in place of streams: then it looks at the scope's
        `lengths` where it goes from step to step."""
        return False


class GruBlock(BlockPart, frozen=True, kw_only=True):
    """A GRU layer: `hidden` units, and whether the reset gate acts after or before the recurrent product.

    A layer that reads in reverse, or both ways (2 `hidden` channels), needs whole sequences.
    """

    kind: ClassVar[str] = "gru"
    wide: ClassVar[tuple[str, ...]] = ("hidden",)
    hidden: int = size()
    reset: str = choice("after", "before", default="after")
    direction: str = choice("forward", "reverse", "both", default="forward")

    @property
    def reads_rows(self) -> bool:
        """Before the reset of a step the recurrence has two products, one after the other."""
        return self.reset == "after"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of the names of its weights, one a direction, as torch has them."""
        return {"forward": ("",), "reverse": (REVERSE,), "both": ("", REVERSE)}[self.direction]


class RingAttentionBlock(BlockPart, frozen=True, kw_only=True):
    """Attention over the last `window` steps: `heads` of `head_width`, in `groups` that share keys and values."""

    kind: ClassVar[str] = "ring_attention"
    wide: ClassVar[tuple[str, ...]] = ("head_width",)
    heads: int = size(most=MOST_HEADS)
    groups: int = size(1)
    head_width: int = size(most=WIDEST_HEAD)
    window: int = size(most=1 << 20)
    slopes: str = choice("alibi", "none", default="alibi")

    @property
    def reads_rows(self) -> bool:
        return True

    def check(self, where: str) -> None:
        if self.heads % self.groups:
            raise ModelError(mismatch(f"{where}.groups", f"a divisor of {self.heads} heads", self.groups))


class DeltaMemoryBlock(BlockPart, frozen=True, kw_only=True):
    """A gated delta memory: `heads` states of (`key`, `value`), after a short convolution of that length (0: none).

    The retention goes through `rank` channels.
    """

    kind: ClassVar[str] = "delta_memory"
    wide: ClassVar[tuple[str, ...]] = ("key", "value", "rank")
    heads: int = size()
    key: int = size(most=WIDEST_HEAD)
    value: int = size()
    rank: int = size()
    convolution: int = size(4, least=0, most=64)
    decay: str = choice("softplus", "bounded", default="softplus")

    @property
    def reads_rows(self) -> bool:
        return True

    def check(self, where: str) -> None:
        if self.convolution == 1:
            raise ModelError(mismatch(f"{where}.convolution", "0 for none, or at least 2 taps", 1))


class MlpBlock(BlockPart, frozen=True, kw_only=True):
    """A gated MLP with `hidden` units."""

    kind: ClassVar[str] = "mlp"
    wide: ClassVar[tuple[str, ...]] = ("hidden",)
    hidden: int = size()
    activation: str = choice("silu", "situ", default="silu")

    @property
    def reads_rows(self) -> bool:
        return True


class ExpertsBlock(BlockPart, frozen=True, kw_only=True):
    """`experts` gated MLPs of `hidden` units, of which each token takes the best `chosen`.

    With `latent` they work at that width, behind a projection down and one up. `shared` units form an expert that every
    token takes, on the stream itself. `capacity` is the factor of Switch Transformers; 0 drops nothing.
    """

    kind: ClassVar[str] = "experts"
    wide: ClassVar[tuple[str, ...]] = ("hidden", "latent", "shared")
    experts: int = size()
    chosen: int = size(most=MOST_CHOSEN)
    hidden: int = size(most=WIDEST_EXPERT)
    scores: str = choice("sigmoid", "softmax", default="sigmoid")
    activation: str = choice("silu", "situ", default="silu")
    latent: int = size(0, least=0)
    shared: int = size(0, least=0)
    capacity: float = number(0.0, least=0, most=1e6)

    @property
    def reads_rows(self) -> bool:
        """What is dropped follows from the streams of one step."""
        return self.capacity == 0

    def check(self, where: str) -> None:
        if self.chosen > self.experts:
            raise ModelError(mismatch(f"{where}.chosen", f"at most {self.experts} experts", self.chosen))


Block = GruBlock | RingAttentionBlock | DeltaMemoryBlock | MlpBlock | ExpertsBlock
BLOCKS: tuple[type[Block], ...] = (GruBlock, RingAttentionBlock, DeltaMemoryBlock, MlpBlock, ExpertsBlock)


class PlainDepth(Part, frozen=True, kw_only=True):
    """A block reads what the one before it made."""

    kind: ClassVar[str] = "plain"


class ResidualDepth(Part, frozen=True, kw_only=True):
    """A block reads the sum of the input and of all that earlier blocks made."""

    kind: ClassVar[str] = "residual"


class DwaDepth(Part, frozen=True, kw_only=True):
    """A block reads a learned weighted average of the stream after each earlier block."""

    kind: ClassVar[str] = "dwa"


class AttnresDepth(Part, frozen=True, kw_only=True):
    """A block reads a softmax mix of what earlier blocks made, by a learned query.

    `block` layers are summed into one source (1: each is its own). `gated` starts as the residual stream.
    """

    kind: ClassVar[str] = "attnres"
    block: int = size(1)
    gated: bool = flag(False)


Depth = PlainDepth | ResidualDepth | DwaDepth | AttnresDepth
DEPTHS: tuple[type[Depth], ...] = (PlainDepth, ResidualDepth, DwaDepth, AttnresDepth)


class NoNorm(Part, frozen=True, kw_only=True):
    """Blocks read the stream as it is."""

    kind: ClassVar[str] = "none"


class RmsNorm(Part, frozen=True, kw_only=True):
    """Blocks and the output read the stream through an RMSNorm of their own."""

    kind: ClassVar[str] = "rms"
    eps: float = number(1e-6, least=1e-12, most=1)


Norm = NoNorm | RmsNorm
NORMS: tuple[type[Norm], ...] = (NoNorm, RmsNorm)
