"""The conversations of a program with the model, while they happen.

A request joins the conversation whose history it continues, and otherwise opens a new one. A new conversation may go on
with an older one in another form: the program dropped an answer, shortened old outputs or replaced its history by a
summary. Which one is the main thread of the rollout is known when the program has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from ludus.agents.echoes import Echo, content_of, echo_of, is_covered
from ludus.errors import Failure
from ludus.response import Item, Items, Response, texts_of
from ludus.thread import MAIN, Thread, ThreadKind
from ludus.tokens import TokenLog

#: The shortest answer that is recognised as a summary in a later conversation, in characters.
SUMMARY = 80

#: The shortest argument of a call that is recognised as the prompt of a sub-agent, in characters.
PROMPT = 8


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
    is_side: bool = False
    record: list[Item] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    log: TokenLog = field(default_factory=TokenLog)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: Response | None = None
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
            names = [str(tool.get("name")) for tool in self.tools]
            self._digest.update(orjson.dumps([self.instructions, names], default=str))
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
        self.record += response.output

    def _turn(self, echo: Echo, items: list[Item], known: int) -> Turn:
        """The turn of a request whose first `known` items are the conversation so far."""
        if not self.restores:
            return Turn(Items(items), known, 0)
        self._ids |= echo.ids
        whole = Echo(len(self.history), known, echo.changed, self._ids)
        return Turn(self.history.extended(whole.added(items)), len(self.history), echo.changed)


class ProgramConversations:
    """All conversations of one rollout's program. `is_side` says by its text whether a call is a side call."""

    def __init__(
        self, prompt: list[Item], *, restores: bool = True, is_side: Callable[[str], bool] | None = None
    ) -> None:
        self._prompt = prompt
        self._restores = restores
        self._is_side = is_side
        self._all: list[ProgramConversation] = []

    def __iter__(self) -> Iterator[ProgramConversation]:
        return iter(self._all)

    def join(self, items: list[Item], params: dict[str, Any]) -> tuple[ProgramConversation, Turn]:
        """The conversation that a request continues, or a new one, and the request as its next turn."""
        instructions = params.get("instructions")
        for conversation in reversed(self._all):
            if (turn := conversation.match(items, instructions)) is not None:
                return conversation, turn
        return self._open(items, instructions, params.get("tools") or [])

    def failure(self) -> Failure | None:
        """Why the last call of the main thread failed; None if it did not."""
        main = max(self._chains(), key=_mainness, default=[])
        return main[-1].failure if main else None

    def too_long(self) -> bool:
        """Whether the last prompt of the main thread was too long for the model."""
        main = max(self._chains(), key=_mainness, default=[])
        return bool(main) and main[-1].unread is not None

    def last_answer(self) -> Response | None:
        """The last answer of the main thread; None if no call was answered."""
        main = max(self._answered(), key=_mainness, default=[])
        if main and main[-1].unread is not None:
            return main[-1].unread[1]
        return next((conversation.last for conversation in reversed(main) if conversation.calls), None)

    def threads(self) -> list[Thread]:
        """The main thread, and then the others; empty if no call was answered."""
        chains = self._answered()
        main = max(chains, key=_mainness, default=[])
        counts: dict[str, int] = {}
        names = {id(conversation): MAIN for conversation in main}
        others: list[tuple[list[ProgramConversation], ThreadKind, str]] = []
        for chain in chains:
            if chain is not main:
                kind = _kind(chain[0])
                counts[kind] = counts.get(kind, 0) + 1
                name = f"{kind}-{counts[kind]}"
                names |= {id(conversation): name for conversation in chain}
                others.append((chain, kind, name))
        others.insert(0, (main, "main", MAIN))
        return [_thread(chain, name, kind, names) for chain, kind, name in others if chain]

    def _answered(self) -> list[list[ProgramConversation]]:
        chains = self._chains()
        answered = [chain for chain in chains if any(conversation.calls for conversation in chain)]
        return answered or [chain for chain in chains if chain[-1].unread is not None]

    def _chains(self) -> list[list[ProgramConversation]]:
        """All conversations, each with those that go on with it."""
        chains = []
        for first in self._all:
            if not self._is_successor(first):
                chain = [first]
                while (then := self._successor(chain[-1])) is not None:
                    chain.append(then)
                chains.append(chain)
        return chains

    def _open(self, items: list[Item], instructions: str | None, tools: list[Any]) -> tuple[ProgramConversation, Turn]:
        before, echo = self._continued(items, instructions)
        base = before.history if before is not None else self._prompt
        if before is None:
            echo = echo_of(base, items)
            before = self._summarised(items)
        text = "\n".join([instructions or "", *map(texts_of, items)])
        turn = Turn(Items(items), echo.theirs, 0)
        if self._restores:
            turn = Turn(Items(echo.restored(base, items)), echo.ours, echo.changed)
        conversation = ProgramConversation(
            len(self._all),
            instructions,
            tools,
            sent=items,
            history=turn.items,
            shared=turn.items[: turn.known],
            restores=self._restores,
            continues=before,
            continued_at=len(before.calls) if before is not None else 0,
            opened_by=self._opener(items) if before is None else None,
            is_side=self._is_side is not None and self._is_side(text),
        )
        conversation._ids |= echo.ids
        self._all.append(conversation)
        return conversation, turn

    def _continued(self, items: list[Item], instructions: str | None) -> tuple[ProgramConversation | None, Echo]:
        """The conversation that shares the most with a request, if that includes an answer of the model."""
        best: tuple[ProgramConversation | None, Echo] = None, Echo()
        for conversation in self._all:
            echo = echo_of(conversation.history, items)
            repeats = echo.theirs == len(items) and conversation.instructions == instructions
            if echo.ours > best[1].ours and (repeats or any(map(_is_by_model, conversation.history[: echo.ours]))):
                best = conversation, echo
        return best

    def _summarised(self, items: list[Item]) -> ProgramConversation | None:
        """The conversation whose last answer stands in a request as a text: the summary of a compaction."""
        text = "\n".join(texts_of(item) for item in items)
        for conversation in reversed(self._all):
            answer = "".join(map(texts_of, conversation.answer)).strip()
            if len(answer) >= SUMMARY and answer in text:
                return conversation
        return None

    def _opener(self, items: list[Item]) -> ProgramConversation | None:
        """The conversation whose last answer calls a tool with a text that this request asks: its sub-agent."""
        text = "\n".join(texts_of(item) for item in items)
        for conversation in reversed(self._all):
            if any(len(prompt) >= PROMPT and prompt in text for prompt in _argument_texts(conversation.answer)):
                return conversation
        return None

    def _successor(self, conversation: ProgramConversation) -> ProgramConversation | None:
        """The last conversation that goes on with another one, which itself did not."""
        heirs = (then for then in reversed(self._all) if then.continues is conversation)
        return next((then for then in heirs if then.continued_at == len(conversation.calls)), None)

    def _is_successor(self, conversation: ProgramConversation) -> bool:
        before = conversation.continues
        return before is not None and self._successor(before) is conversation


def _add(hasher: Any, contents: Iterable[tuple[Any, ...]]) -> None:
    for content in contents:
        hasher.update(orjson.dumps(content, default=str))
        hasher.update(b"\n")


def _mainness(chain: list[ProgramConversation]) -> tuple[Any, ...]:
    """Main is what no tool call opened, has tools, and makes the most calls; the first of equals."""
    first = chain[0]
    calls = sum(len(conversation.calls) for conversation in chain)
    return not first.is_side, first.opened_by is None, bool(first.tools), calls, -first.number


def _kind(first: ProgramConversation) -> ThreadKind:
    """A sub-agent has tools, or is the work of a tool call. What else a program asks is its own business."""
    is_agent = not first.is_side and (bool(first.tools) or first.opened_by is not None)
    return "agent" if is_agent else "side"


def _thread(chain: list[ProgramConversation], name: str, kind: ThreadKind, names: dict[int, str]) -> Thread:
    """A chain of conversations as one thread. What a later one repeats of an earlier one is not repeated."""
    first = chain[0]
    thread = Thread(name, kind, names.get(id(first.opened_by)), first.instructions, first.tools)
    if kind != "main":  # the prompt of the task stands in front of the main thread
        thread.items += first.shared
    for conversation in chain:
        start = len(thread.items)
        thread.items += conversation.record
        for number, call in enumerate(conversation.calls):
            more: dict[str, Any] = {"compacted": True} if conversation is not first and not number else {}
            if conversation.tools != first.tools:
                more["tools"] = call.get("tools", conversation.tools)
            thread.calls.append({**call, "at": call["at"] + start, **more})
    if (unread := chain[-1].unread) is not None:
        turn, empty = unread
        thread.items += turn.items[turn.known :]
        thread.calls.append({"items": 0, "prompt_too_long": empty.prompt_too_long, "at": len(thread.items)})
    return thread


def _is_by_model(item: Item) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"


def _argument_texts(answer: list[Item]) -> Iterator[str]:
    for item in answer:
        if item.get("type") == "function_call":
            try:
                arguments = orjson.loads(item.get("arguments") or "{}")
            except orjson.JSONDecodeError:
                continue
            values = arguments.values() if isinstance(arguments, dict) else ()
            yield from (value.strip() for value in values if isinstance(value, str))
