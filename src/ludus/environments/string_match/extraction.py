r"""The extraction modes: the answer is in a box, after "Answer:", on the last line, or the whole text.

Each mode takes the text and `compat`: whether to reproduce known errors of the reference. It returns the answer or
None, and takes time proportional to the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ludus.graders.answers import unwrap_text

Mode = Callable[[str, bool], str | None]

_BOX = "\\boxed{"
_TOKEN = re.compile(r"\\boxed\{|\\.|[{}]", re.DOTALL)  # an escaped brace is text
_COLON = "[:\uff1a]"
_ANSWER = re.compile(rf"answer\s*{_COLON}\s*(.+)", re.IGNORECASE)
_LINE = r"([^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)"  # to the end of the line, wherever `str.splitlines` sees one
_MARKED_ANSWER = re.compile(rf"answer[\s*_]*{_COLON}(?:[*_]{{1,3}}(?=\s))?\s*{_LINE}", re.IGNORECASE)


def boxed(text: str, compat: bool = False) -> str | None:
    r"""The content of the last `\boxed{...}` that is closed. A `\text{}` around the whole content is removed."""
    unclosed: list[tuple[bool, int]] = []
    last = None
    for token in _TOKEN.finditer(text):
        if token[0] in (_BOX, "{"):
            unclosed.append((token[0] == _BOX, token.end()))
        elif token[0] == "}" and unclosed:
            is_box, start = unclosed.pop()
            if is_box and (last is None or start > last[0]):
                last = (start, token.start())
    return unwrap_text(text[slice(*last)]) if last else None


def final_answer(text: str, compat: bool = False) -> str | None:
    """The rest of the line after the last "Answer:", without a full stop at its end; else the last box."""
    answers = [match[1] for match in (_ANSWER if compat else _MARKED_ANSWER).finditer(text)]
    if not answers:
        return boxed(text, compat)
    answer = answers[-1].strip()
    return (answer if compat else _without_unpaired_emphasis(answer)).rstrip(".").strip()


def last_line(text: str, compat: bool = False) -> str | None:
    """The last line that is not blank."""
    lines = text.strip().splitlines()
    return lines[-1].strip() or None if lines else None


def full_response(text: str, compat: bool = False) -> str | None:
    """The whole text."""
    return text.strip() or None


MODES: dict[str, Mode] = {mode.__name__: mode for mode in (boxed, final_answer, last_line, full_response)}


def _without_unpaired_emphasis(answer: str) -> str:
    """The answer without the end of an emphasis that began before the answer, as in `**Answer: 7**`."""
    for mark in ("**", "__"):
        if answer.count(mark) == 1 and len(answer) > len(mark):
            answer = answer.removeprefix(mark).removesuffix(mark).strip()
    return answer
