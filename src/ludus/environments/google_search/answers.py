r"""The answer that a rollout ends with.

It stands in the message that comes last, after any thinking aloud: in the last `\boxed{}` for a question with options,
behind the last "Answer:" for an open one. What the reference reads instead is here too, for `compat`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.chat_reasoning import CLOSING, OPENING
from ludus.graders.answers import last_boxed, marked_answers
from ludus.response import Item, Response, is_message, texts_of

_BOX = "\\boxed{"
_BETWEEN = "\0"  # written out it would be four characters, so it stands between texts only


def final_text(response: Response) -> str:
    """What the model says last, without what it thinks aloud; empty if the rollout does not end with a message."""
    text = texts_of(response.output[-1]) if _ends_with_message(response) else ""
    return text.rpartition(CLOSING)[2].partition(OPENING)[0]


def boxed_option(response: Response) -> str | None:
    """What stands in the last box of the final message, exactly as it stands there."""
    return last_boxed(final_text(response))


def stated_answer(response: Response) -> str | None:
    """What stands behind the last "Answer:" of the final message, up to the end of its line or to "Confidence:"."""
    stated = next(marked_answers(final_text(response)), None)
    return stated.partition("Confidence:")[0].strip() or None if stated is not None else None


def reference_option(response: Response) -> str | None:
    r"""The first box as far as the first brace, in the last message's parts as Python writes them out.

    So a line break counts as two characters, and annotations and refusals count as text.
    """
    if not _ends_with_message(response):
        return None
    written = _BETWEEN.join(map(repr, _texts(response.output[-1])))
    _, box, rest = written.partition(_BOX)
    option, brace, _ = rest.partition("}")
    return option if box and brace and _BETWEEN not in option else None


def reference_answer(response: Response) -> str | None:
    """The last text between "Answer:" and "Confidence:" in everything that the model said."""
    text, found, position = response.output_text, None, 0
    while (start := text.find("Answer:", position)) >= 0 and (end := text.find("Confidence:", start)) >= 0:
        found, position = text[start + len("Answer:") : end].strip(), end
    return found


def _ends_with_message(response: Response) -> bool:
    return bool(response.output) and is_message(response.output[-1])


def _texts(item: Item) -> Iterator[str]:
    """Every text in a message, in the order in which the reference's objects hold them."""
    content = item.get("content")
    if isinstance(content, str):
        yield content
        return
    for part in content or ():
        if isinstance(part, dict):
            yield from _strings(part.get("annotations"))
            yield from (part[key] for key in ("text", "refusal") if isinstance(part.get(key), str))


def _strings(value: Any) -> Iterator[str]:
    """The texts in annotations, which hold at most lists and mappings of plain values."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += [each[key] for key in sorted(each, reverse=True)]
        elif isinstance(each, list):
            waiting += reversed(each)
