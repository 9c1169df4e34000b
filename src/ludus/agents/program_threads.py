"""The conversations of a program with the model, while they happen.

A request joins the conversation whose history it continues, and otherwise opens a new one. A new conversation may go on
with an older one in another form: the program dropped an answer, shortened old outputs or replaced its history by a
summary. Which one is the main thread of the rollout is known when the program has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ludus.agents.echoes import Echo, echo_of
from ludus.agents.program_conversation import ProgramConversation, Turn, tool_names
from ludus.errors import Failure
from ludus.response import Item, Items, Response, by_model, texts_of
from ludus.thread import MAIN, Thread, ThreadKind

#: The shortest answer that is recognised as a summary in a later conversation, in characters.
SUMMARY = 80

#: The shortest argument of a call that is recognised as the prompt of a sub-agent, in characters.
PROMPT = 8


class ProgramConversations:
    """All conversations of one rollout's program. `is_side` says by its text whether a call is a side call.

    `beside_policy`: a command of the model may call the model, too. What begins while a command runs is its work.
    """

    def __init__(
        self,
        prompt: list[Item],
        *,
        restores: bool = True,
        is_side: Callable[[str], bool] | None = None,
        beside_policy: bool = False,
    ) -> None:
        self._beside_policy = beside_policy
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
        texts = "\n".join(map(texts_of, items))
        writers = [conversation for conversation in reversed(self._all) if _is_quoted(conversation, texts)]
        if before is None:
            echo = echo_of(base, items)
            before = self._compacted(writers, instructions, tools)
        for writer in writers:
            if before is not None and writer is not before and not writer.tools:
                writer.summarises = before
        text = f"{instructions or ''}\n{texts}"
        turn = Turn(Items(items), echo.theirs, 0)
        if self._restores:
            turn = Turn(Items(echo.restored(base, items)), echo.ours, echo.changed)
        opener = self._opener(texts) if before is None else None
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
            opened_by=opener,
            is_side=self._is_side is not None and self._is_side(text) and not (opener and tools),
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
            if echo.ours > best[1].ours and (repeats or any(map(by_model, conversation.history[: echo.ours]))):
                best = conversation, echo
        return best

    def _compacted(
        self, writers: list[ProgramConversation], instructions: str | None, tools: list[Any]
    ) -> ProgramConversation | None:
        """The conversation that a request goes on with, if a summary by one of the `writers` stands in it.

        That is the writer, or a conversation with the tools of the request that had another one write the summary.
        """
        if not writers or tool_names(writers[0].tools) == tool_names(tools):
            return writers[0] if writers else None
        same = [
            conversation
            for conversation in self._all
            if conversation.calls
            and (conversation.instructions, tool_names(conversation.tools)) == (instructions, tool_names(tools))
            and self._successor(conversation) is None
        ]
        return max(same, key=lambda one: (one.unread is not None, one.number), default=writers[0])

    def _opener(self, text: str) -> ProgramConversation | None:
        """The conversation whose last answer calls a tool with a text that this request asks: its sub-agent.

        Beside a policy, also one whose last answer calls any tool.
        """
        for conversation in reversed(self._all):
            if any(len(prompt) >= PROMPT and prompt in text for prompt in _argument_texts(conversation.answer)):
                return conversation
        running = (
            conversation
            for conversation in reversed(self._all)
            if any(item.get("type") == "function_call" for item in conversation.answer)
            and self._successor(conversation) is None
        )
        return next(running, None) if self._beside_policy else None

    def _successor(self, conversation: ProgramConversation) -> ProgramConversation | None:
        """The last conversation that goes on with another one, which itself did not."""
        heirs = (then for then in reversed(self._all) if then.continues is conversation)
        return next((then for then in heirs if then.continued_at == len(conversation.calls)), None)

    def _is_successor(self, conversation: ProgramConversation) -> bool:
        before = conversation.continues
        return before is not None and self._successor(before) is conversation


def _is_quoted(conversation: ProgramConversation, text: str) -> bool:
    """Whether the last answer of a conversation stands in a text, and is long enough to be a summary."""
    answer = "".join(map(texts_of, conversation.answer)).strip()
    return len(answer) >= SUMMARY and answer in text


def _mainness(chain: list[ProgramConversation]) -> tuple[Any, ...]:
    """Main is what no tool call opened, has tools, and makes the most calls; the first of equals."""
    first = chain[0]
    calls = sum(len(conversation.calls) for conversation in chain)
    serves = first.is_side or first.summarises is not None
    return not serves, first.opened_by is None, bool(first.tools), calls, -first.number


def _kind(first: ProgramConversation) -> ThreadKind:
    """A sub-agent has tools, or is the work of a tool call. A summary is part of a compaction.

    What else a program asks is its own business.
    """
    if first.summarises is not None and not first.is_side:
        return "compacted"
    is_agent = not first.is_side and (bool(first.tools) or first.opened_by is not None)
    return "agent" if is_agent else "side"


def _thread(chain: list[ProgramConversation], name: str, kind: ThreadKind, names: dict[int, str]) -> Thread:
    """A chain of conversations as one thread. What a later one repeats of an earlier one is not repeated."""
    first = chain[0]
    parent = names.get(id(first.summarises or first.opened_by))
    thread = Thread(name, kind, parent, first.instructions, first.tools)
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


def _argument_texts(answer: list[Item]) -> Iterator[str]:
    for item in answer:
        if item.get("type") == "function_call":
            try:
                arguments = orjson.loads(item.get("arguments") or "{}")
            except orjson.JSONDecodeError:
                continue
            values = arguments.values() if isinstance(arguments, dict) else ()
            yield from (value.strip() for value in values if isinstance(value, str))
