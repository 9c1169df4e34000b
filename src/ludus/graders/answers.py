r"""Finding the answer in the text of a model.

A model's text may be hostile. Every function here accepts any string, never raises, and takes time in proportion to the
text's length: 100,000 opening braces cost as much as 100,000 letters. These functions find candidate answers; each
environment decides which candidate counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BOX = "\\boxed{"
_PLAIN_BOX = re.compile(r"([^{}\\]*)\}")
_WRAPPER = "\\text{"
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` and `\}` are text, as in LaTeX
_DEPTH_CHANGES = {"{": 1, "}": -1}
_ANSWER_COLON = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_MARKED_ANSWER = re.compile(r"answer[*_`~\s]*[:\uff1a][*_`~\s]*", re.IGNORECASE)

#: The Arabic and Bengali letters that label options A to D.
_FOREIGN = {"أ": "A", "ب": "B", "ج": "C", "د": "D", "অ": "A", "ব": "B", "ড": "C", "ঢ": "D"}
_IN_WORD = r"[\w\u064b-\u0652\u0981-\u0983\u09bc-\u09cd]"  # letters, and the vowel signs of both scripts
_FOREIGN_LETTER = re.compile(rf"(?<!{_IN_WORD})[{''.join(_FOREIGN)}](?!{_IN_WORD})")
_FULL_WIDTH = str.maketrans("\uff21\uff22\uff23\uff24", "ABCD")


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces matched; None without a box, or if the last box is not closed.

    last_boxed(r"First \boxed{1}, no: \boxed{\frac{1}{2}}")   # '\\frac{1}{2}'
    """
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    if plain := _PLAIN_BOX.match(text, start):  # the common case: no braces inside
        return plain[1]
    depth = 1
    for token in _BRACE.finditer(text, start):
        depth += _DEPTH_CHANGES.get(token[0], 0)
        if depth == 0:
            return text[start : token.start()]
    return None


def unwrap_text(text: str) -> str:
    r"""The text without any `\text{...}` around the whole text, and without outer white space.

    unwrap_text(r"\text{ \text{B} }")   # 'B'
    """
    if _WRAPPER not in text:
        return text.strip()
    closing = _closing_braces(text)
    start, end = _trimmed(text, 0, len(text))
    while text.startswith(_WRAPPER, start) and closing.get(start + len(_WRAPPER) - 1) == end - 1:
        start, end = _trimmed(text, start + len(_WRAPPER), end - 1)
    return text[start:end]


def normalised(text: str) -> str:
    """The text in lower case, each run of white space made one space, to compare the texts of options."""
    return " ".join(text.lower().split())


def first_answer(text: str) -> str | None:
    """The text after the first "answer:" (in any case), to the end of the line; None without such text."""
    match = _ANSWER_COLON.search(text)
    return match[1].strip() if match else None


def marked_answers(text: str) -> Iterator[str]:
    """The text after each "Answer:", bold or not, to the end of the line or the next "Answer:". Last answer first."""
    end = len(text)
    for match in reversed(list(_MARKED_ANSWER.finditer(text))):
        line_end = text.find("\n", match.end(), end)
        yield text[match.end() : end if line_end < 0 else line_end].strip()
        end = match.start()


def latin_letters(text: str) -> str:
    """The text with Arabic, Bengali and full-width option letters replaced by A to D.

    An Arabic or Bengali letter is replaced only if it stands alone, because ordinary words contain it too.
    """
    return _FOREIGN_LETTER.sub(lambda match: _FOREIGN[match[0]], text.translate(_FULL_WIDTH))


def _closing_braces(text: str) -> dict[int, int]:
    """The position of the closing brace for the position of each opening brace."""
    unclosed: list[int] = []
    closing: dict[int, int] = {}
    for token in _BRACE.finditer(text):
        if token[0] == "{":
            unclosed.append(token.start())
        elif token[0] == "}" and unclosed:
            closing[unclosed.pop()] = token.start()
    return closing


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
