"""A format of training sets: the rollouts of a unit, and the rows that it becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Literal

from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus_data.export.conversation import STYLES, Conversations, Losses, ReasoningChoice
from ludus_data.recorded import Sample

Shape = Literal["messages", "completion"]
ExportRow = dict[str, Any]
#: The rollouts of a unit: one, or a pair with the better one first.
Unit = tuple[Sample, ...]

#: Rows as a writer takes them; a view of memory if a helper process made them.
Packed = bytes | memoryview

#: Fields of a rollout's record that conversations cannot hold.
RECORD_FIELDS = ("fields of the task that only the verifier reads", "verdict values", "timings", "usage", "seed")
TOKEN_RECORDS = ("token ids and logprobs",)

#: The values of each choice; the first is the default.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "reasoning": ("keep", "tags", "drop"),
    "tokens": (False, True),
    "shape": ("messages", "completion"),
}


@dataclass(frozen=True, slots=True)
class Choices:
    """Options of formats."""

    reasoning: ReasoningChoice = "keep"
    tokens: bool = False
    shape: Shape = "messages"


class Writer(ABC):
    """Writes packed rows (`Format.packed`)."""

    @abstractmethod
    def write(self, packed: Packed, rows: int) -> None:
        """Add so many rows."""

    def finish(self) -> None:  # noqa: B027  (most writers hold nothing back)
        """Write buffered rows."""

    def abandon(self) -> None:  # noqa: B027
        """Let go of the file after an error."""


class LineFile(Writer):
    """A file of lines."""

    def __init__(self, file: IO[bytes], header: bytes = b"") -> None:
        self._write = file.write
        self._write(header)

    def write(self, packed: Packed, rows: int) -> None:
        """Add lines."""
        self._write(packed)


#: The first field of a member's row that has a reward of its own, until the group is known. It is not exported.
OWN_REWARD = "own_reward"


class Format(ABC):
    """One format. `rows` raises `LeftOut` for rollouts that it cannot hold.

    `takes` says what a unit is: a rollout, a pair, or the member of a group. Members' rows get a `group_size` and an
    `advantage` when the group is known. If the format's target refuses unknown fields, `origins_beside` sends the
    receipts to a second file, a line for each row. `never` lists what the format cannot hold.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    takes: ClassVar[Literal["rollout", "pair", "member"]] = "rollout"
    #: `jsonl`, `csv`, `parquet`, `folder`, or what a package of its own writes
    file: ClassVar[str] = "jsonl"
    origins_beside: ClassVar[bool] = False
    header: ClassVar[bytes] = b""  # the first line of the file
    #: How many single rows are packed at once: columns of one row would cost too much.
    at_once: ClassVar[int] = 1
    never: tuple[str, ...] = RECORD_FIELDS + TOKEN_RECORDS
    #: The choices that change something, by the name of their field in `Choices`.
    offers: ClassVar[frozenset[str]] = frozenset({"reasoning"})

    def __init__(self, choices: Choices, losses: Losses) -> None:
        self.choices = choices
        self.losses = losses
        if choices.tokens:
            self.never = (*RECORD_FIELDS, "messages and tools as text")
        self.conversations = self._conversations()

    @classmethod
    def checked_choices(cls, **values: Any) -> Choices:
        """The choices of a user. A choice that is unknown, or has no effect in this format, is an error."""
        for name, value in values.items():
            if value not in (known := _KNOWN[name]):
                raise UserError(f"--{name} {value!r:.40} is unknown", f"Choose one of {', '.join(map(str, known))}")
            if value != known[0] and name not in cls.offers:
                raise UserError(f"--{name} changes nothing in the format {cls.name}", f"Leave out --{name}")
        return Choices(**values)

    @abstractmethod
    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """The rows of a unit."""

    def line(self, row: ExportRow) -> bytes:
        """A row as a file of lines has it."""
        return encode(row) + b"\n"

    def packed(self, rows: Iterable[ExportRow]) -> Packed:
        """Rows as the writer of this format takes them: lines, or columns of a table."""
        return b"".join(map(self.line, rows))

    def writer(self, file: IO[bytes]) -> Writer:
        """What writes the file."""
        return LineFile(file, self.header)

    def _conversations(self) -> Conversations:
        return Conversations(self.losses, STYLES[self.choices.reasoning])
