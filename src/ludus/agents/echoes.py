"""Recognises our own conversation in the request of a program.

Programs send the whole conversation with every call, and write the model's turns again in their own way: arguments
with other spaces and another order of keys, ids of their own, no reasoning, or reasoning as text in tags. To the model,
such a turn is a new one: its tokens differ, and every call would start a new training sequence. So what a program
echoes is replaced by what the model wrote.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from ludus.dialects.client_tools import text_input
from ludus.response import Item, texts_of

#: Reasoning that a program wrote as text.
_THOUGHTS = re.compile(r"\s*<(?P<tag>think|thinking|thought|reasoning)>(?P<text>.*?)</(?P=tag)>", re.DOTALL)


class Echo(NamedTuple):
    """The part of a program's request that we know: the number of our items, of its items, and of changed ones.

    `ids` maps the program's ids of calls to ours, where they differ.
    """

    ours: int = 0
    theirs: int = 0
    changed: int = 0
    ids: dict[str, str] = {}

    def restored(self, ours: list[Item], theirs: list[Item]) -> list[Item]:
        """The program's request with our items in place of those that it echoes."""
        return [*ours[: self.ours], *self.added(theirs)]

    def added(self, theirs: list[Item]) -> list[Item]:
        """What the program's request adds to ours."""
        return [self._with_our_id(item) for item in theirs[self.theirs :]]

    def _with_our_id(self, item: Item) -> Item:
        ours = self.ids.get(str(item.get("call_id")))
        return {**item, "call_id": ours} if ours is not None else item


def echo_of(ours: list[Item], theirs: list[Item]) -> Echo:
    """The longest common beginning of our conversation and a program's.

    The program may leave out reasoning and messages without content.
    """
    echo, at, ids = Echo(), 0, dict[str, str]()
    for number, item in enumerate(theirs):
        skipped = at
        while at < len(ours) and not (same := is_same(ours[at], item)) and _may_be_dropped(ours[at]):
            at += 1
        if at == len(ours) or not same:
            break
        changed = at - skipped + (_written(ours[at]) != _written(item))
        if ours[at].get("type") == "function_call" and ours[at].get("call_id") != item.get("call_id"):
            ids[str(item.get("call_id"))] = str(ours[at].get("call_id"))
        at += 1
        echo = Echo(at, number + 1, echo.changed + changed, ids)
    return echo


def is_covered(ours: list[Item], echo: Echo) -> bool:
    """Whether a program echoes all of our items, except those that it may leave out."""
    return all(map(_may_be_dropped, ours[echo.ours :]))


def is_same(ours: Item, theirs: Item) -> bool:
    """Whether two items have the same content. Dialects lose ids and status, and programs write JSON their own way."""
    return content_of(ours) == content_of(theirs) or _pass_the_same_text(ours, theirs) or _says_the_same(ours, theirs)


def _says_the_same(ours: Item, theirs: Item) -> bool:
    """Whether a program wrote the model's reasoning as text in tags, alone or in front of the answer."""
    if not _is_answer(theirs) or not (thoughts := _THOUGHTS.match(texts_of(theirs))):
        return False
    rest = texts_of(theirs)[thoughts.end() :].strip()
    if ours.get("type") == "reasoning":
        return not rest and thoughts["text"].strip() == "\n".join(filter(None, content_of(ours)[1])).strip()
    return _is_answer(ours) and bool(rest) and rest == texts_of(ours).strip()


def _is_answer(item: Item) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "assistant" and not _other_parts(item)


def _pass_the_same_text(ours: Item, theirs: Item) -> bool:
    """Whether two calls pass the same text to a custom tool. The program knows the text, not how the model wrote it."""
    if not ours.get("type") == theirs.get("type") == "function_call" or ours.get("name") != theirs.get("name"):
        return False
    texts = ours.get("arguments"), theirs.get("arguments")
    return isinstance(texts[0], str) and isinstance(texts[1], str) and text_input(texts[0]) == text_input(texts[1])


def _may_be_dropped(item: Item) -> bool:
    if item.get("type") == "reasoning":
        return True
    return item.get("type", "message") == "message" and not texts_of(item) and not _other_parts(item)


def content_of(item: Item) -> tuple[Any, ...]:
    """What an item says, without its ids, its status and the spelling of its JSON."""
    kind = item.get("type", "message")
    if kind == "message":
        return kind, item.get("role", "assistant"), texts_of(item), _other_parts(item)
    if kind == "function_call":
        return kind, item.get("name"), _parsed(item.get("arguments"))
    if kind == "function_call_output":
        return kind, _flat(item.get("output"))
    if kind == "reasoning":
        return kind, [part.get("text") for part in [*(item.get("summary") or []), *(item.get("content") or [])]]
    return kind, {key: value for key, value in item.items() if key not in ("id", "status")}


def _other_parts(item: Item) -> list[Any]:
    """The parts of a message that are no text, such as images."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if not isinstance(part, dict) or not ("text" in part or "refusal" in part)]


def _parsed(arguments: Any) -> Any:
    """Arguments as a value, so that spaces and the order of keys do not count."""
    try:
        return orjson.loads(arguments)
    except (orjson.JSONDecodeError, TypeError):
        return arguments


def _flat(output: Any) -> Any:
    """The output of a tool. A list of one text is that text."""
    if isinstance(output, list) and all(isinstance(part, dict) and "text" in part for part in output):
        return "".join(str(part["text"]) for part in output)
    return output


def _written(item: Item) -> tuple[Any, ...]:
    """What the model reads of an item."""
    return item.get("type", "message"), item.get("arguments"), item.get("name"), texts_of(item)
