"""One conversation of a program with the model: what was sent, what the model has seen, and what it answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from ludus.agents.echoes import Echo, content_of, echo_of, is_covered
from ludus.errors import Failure
from ludus.response import Item, Items, Response
from ludus.tokens import TokenLog


@dataclass(slots=True)
class Turn:
    """A request as the model gets it. Its first `known` items are the conversation so far.

    The program wrote `changed` of them in its own way.
    """

    items: Items
    known: int
    changed: int


@dataclass(slots=True, eq=False)
class ProgramConversation:
    """One conversation: what the program sent last, what the model has seen of it, and all that happened."""

    number: int
    instructions: str | None
    tools: list[dict[str, Any]]
    sent: list[Item]
    #: what the model has seen, and its last answer
    history: Items
    #: what the conversation shares with the prompt of the task, or with one that it continues
    shared: list[Item]
    restores: bool
    #: the conversation that this one goes on with in another form, and how many calls it had then
    continues: ProgramConversation | None = None
    continued_at: int = 0
    #: the conversation whose tool call this one answers
    opened_by: ProgramConversation | None = None
    #: the conversation whose summary this one wrote for the program
    summarises: ProgramConversation | None = None
    is_side: bool = False
    record: list[Item] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    log: TokenLog = field(default_factory=TokenLog)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: Response | None = None
    bytes: int = 0  #: of its longest request
    failure: Failure | None = None
    #: a request that was too long for the model, and its empty answer; None after a call that was answered
    unread: tuple[Turn, Response] | None = None
    _digest: Any = None  # of what the model has seen, and of its last answer
    _ids: dict[str, str] = field(default_factory=dict)  # the program's ids of calls, and ours

    @property
    def answer(self) -> list[Item]:
        """The model's last answer."""
        return self.last.output if self.last is not None else []

    def session(self, rollout_id: str) -> str:
        """The name under which models know this conversation."""
        return f"{rollout_id}/{self.number}" if self.number else rollout_id

    def match(self, items: list[Item], instructions: str | None) -> Turn | None:
        """A request as the next turn of this conversation; None if it does not continue it."""
        if not self.calls and instructions != self.instructions:
            return None
        known, answer = len(self.sent), self.answer
        if items[:known] == self.sent:  # the usual case: the program repeats what it sent before
            echo = echo_of(answer, items[known:])
            if is_covered(answer, echo) and (len(items) > known or not self.calls):
                turn = self._turn(echo, items, known + echo.theirs)
                if not self.calls:  # the first call failed: nothing of it is in the record
                    turn.known = len(self.shared)
                return turn
        if not self.calls:
            return None
        echo = echo_of(self.history, items)
        return self._turn(echo, items, echo.theirs) if is_covered(self.history, echo) else None

    def key(self, turn: Turn, content: Callable[[Item], tuple[Any, ...]] = content_of) -> str:
        """What a turn asks, as a digest: the same for a program that starts again and asks the same.

        `content` is what counts of an item that the turn adds.
        """
        if self._digest is None:
            self._digest = blake2b(digest_size=16)
            self._digest.update(orjson.dumps([self.instructions, tool_names(self.tools)], default=str))
            _add(self._digest, map(content_of, self.shared))
        asked = self._digest.copy()
        _add(asked, map(content, turn.items[turn.known :]))
        return str(asked.hexdigest())

    def take(self, items: list[Item], turn: Turn, response: Response) -> None:
        """The model has answered a turn. `items` are those that the program sent."""
        added = turn.items[turn.known :]
        self.record += added
        if self._digest is not None:
            _add(self._digest, map(content_of, [*added, *response.output]))
        self.sent, self.last, self.unread = items, response, None
        self.history = turn.items.extended(response.output)
        self.calls[-1]["at"] = len(self.record)
        if turn.changed:
            self.calls[-1]["restored"] = turn.changed
        self.record += response.output

    def _turn(self, echo: Echo, items: list[Item], known: int) -> Turn:
        """The turn of a request whose first `known` items are the conversation so far."""
        if not self.restores:
            return Turn(Items(items), known, 0)
        self._ids |= echo.ids
        whole = Echo(len(self.history), known, echo.changed, self._ids)
        return Turn(self.history.extended(whole.added(items)), len(self.history), echo.changed)


def tool_names(tools: list[Any]) -> list[str]:
    """The names of tools."""
    return [str(tool.get("name")) for tool in tools]


def _add(hasher: Any, contents: Iterable[tuple[Any, ...]]) -> None:
    for content in contents:
        hasher.update(orjson.dumps(content, default=str))
        hasher.update(b"\n")
