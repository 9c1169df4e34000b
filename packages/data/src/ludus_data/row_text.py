"""The part of a row that identifies its task, as a digest and as words.

By default this is the prompt: two rows with the same prompt are the same task, whatever their ids and notes. `row` is
the whole row; any other name is a field, and dots lead into objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, TypeVar

import orjson

from ludus.data.row_checks import BadRow, Problem
from ludus.record import Row
from ludus.response import texts_of

T = TypeVar("T")

PROMPT, WHOLE_ROW = "prompt", "row"

#: Scripts without spaces: each character is a word of its own.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_WORD = re.compile(rf"[{_DENSE}]|[^\W{_DENSE}]+")

#: What a near-duplicate is compared by: numbers with their decimals, words, and operators. A hyphen between two words
#: is no operator.
_TOKEN = re.compile(
    rf"\d+(?:[.,]\d+)*|[{_DENSE}]|[^\W\d{_DENSE}]+|(?<![^\W\d]{{2}})-|-(?![^\W\d]{{2}})"
    r"|[+*/=<>^%|~&\u00ac\u00b1\u00d7\u00f7\u2190-\u22ff]"
)


class RowPart:
    """One part of every row: `prompt`, `row`, or a field such as `verifier_metadata.id`."""

    def __init__(self, name: str = PROMPT) -> None:
        self.name = name

    def value(self, where: str, row: Row) -> Any:
        """The part of one row. A row without the field is a `BadRow`."""
        if self.name == WHOLE_ROW:
            return row
        if self.name == PROMPT:
            return _prompt(row)
        value: Any = row
        for step in self.name.split("."):
            if not isinstance(value, dict) or step not in value:
                hint = f"Name a field that every row has, or {PROMPT} or {WHOLE_ROW}"
                raise BadRow([Problem(where, self.name, f"{self.name} is missing", hint)])
            value = value[step]
        return value

    def digest(self, where: str, row: Row) -> bytes:
        """16 bytes that are equal for equal parts, whatever the order of their keys."""
        return content_digest(where, self.value(where, row))

    def words(self, where: str, row: Row) -> list[str]:
        """The words of the part in lower case."""
        return words(self._text(where, row))

    def tokens(self, where: str, row: Row) -> list[str]:
        """The words, numbers and operators of the part in lower case."""
        return tokens(self._text(where, row))

    def _text(self, where: str, row: Row) -> str:
        return prompt_text(row) if self.name == PROMPT else _all_text(self.value(where, row))


def content_digest(where: str, value: Any) -> bytes:
    """16 bytes that are equal for equal JSON values."""
    try:
        encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        problem = Problem(where, "row", f"nested too deep: {error}", "Fix the row or leave it out")
        raise BadRow([problem]) from error
    return blake2b(encoded, digest_size=16).digest()


def prompt_text(row: Row) -> str:
    """The text of a prompt: instructions and messages. For a row without a prompt, all its text."""
    params = row.get("responses_create_params")
    if not isinstance(params, dict) or "input" not in params:
        return _all_text(row)
    parts = [params["instructions"]] if isinstance(params.get("instructions"), str) else []
    prompt = params["input"]
    if isinstance(prompt, str):
        return "\n".join([*parts, prompt])
    for item in prompt if isinstance(prompt, list) else ():
        if isinstance(item, dict):
            output = item.get("output")
            parts.append(output if isinstance(output, str) else texts_of(item))
    return "\n".join(parts)


def words(text: str) -> list[str]:
    """The words of a text in lower case. Each character of Chinese, Japanese, Korean and Thai is a word."""
    return _WORD.findall(text.lower())


def tokens(text: str) -> list[str]:
    """The words, numbers and operators of a text in lower case: `12 - 3.5 x` is `12`, `-`, `3.5`, `x`."""
    return _TOKEN.findall(text.lower())


def ngrams(words: list[T], size: int) -> Iterator[tuple[T, ...]]:
    """All runs of `size` words. A shorter text is one run."""
    if len(words) <= size:
        return iter([tuple(words)] if words else [])
    return zip(*(words[start:] for start in range(size)), strict=False)


def _prompt(row: Row) -> Any:
    params = row.get("responses_create_params")
    if not isinstance(params, dict) or "input" not in params:
        return row
    prompt = params["input"]
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return [asked, params.get("instructions"), params.get("tools")]


def _all_text(value: Any) -> str:
    """All texts in a JSON value, one a line."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            texts.append(node)
        elif isinstance(node, (dict, list)):
            waiting += reversed(node.values() if isinstance(node, dict) else node)
        elif isinstance(node, (int, float)) and not isinstance(node, bool):
            texts.append(str(node))
    return "\n".join(texts)
