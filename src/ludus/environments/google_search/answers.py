r"""Find the final answer of a rollout.

The answer is in the last message, after any `<think>` block: in the last `\boxed{}` for a question with options, after
the last "Answer:" for an open question. The `reference_` functions read as the reference does, for `compat`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.chat_reasoning import CLOSING, OPENING
from ludus.graders.answers import last_boxed, marked_answers
from ludus.response import Item, Response, is_message, texts_of

_BOX = "\\boxed{"
_BETWEEN = "\0"  # `repr` writes this character as four others, so it appears only between texts


def final_text(response: Response) -> str:
    """The last message without `<think>` blocks; empty if the rollout does not end with a message."""
    text = texts_of(response.output[-1]) if _ends_with_message(response) else ""
    return text.rpartition(CLOSING)[2].partition(OPENING)[0]


def boxed_option(response: Response) -> str | None:
    """The exact content of the last box in the final message."""
    return last_boxed(final_text(response))


def stated_answer(response: Response) -> str | None:
    """The text after the last "Answer:" of the final message, up to the end of the line or "Confidence:"."""
    stated = next(marked_answers(final_text(response)), None)
    return stated.partition("Confidence:")[0].strip() or None if stated is not None else None


def reference_option(response: Response) -> str | None:
    r"""The first box, up to its first closing brace, in the `repr` of the last message's parts.

    In `repr` a line break is two characters, and annotations and refusals count as text.
    """
    if not _ends_with_message(response):
        return None
    written = _BETWEEN.join(map(repr, _texts(response.output[-1])))
    _, box, rest = written.partition(_BOX)
    option, brace, _ = rest.partition("}")
    return option if box and brace and _BETWEEN not in option else None


def reference_answer(response: Response) -> str | None:
    """The last text between "Answer:" and "Confidence:" in all messages."""
    text, answer, position = response.output_text, None, 0
    while (start := text.find("Answer:", position)) >= 0 and (end := text.find("Confidence:", start)) >= 0:
        answer, position = text[start + len("Answer:") : end].strip(), end
    return answer


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
    """All texts inside annotations, which are nested lists and mappings."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            waiting += [part[key] for key in sorted(part, reverse=True)]
        elif isinstance(part, list):
            waiting += reversed(part)
