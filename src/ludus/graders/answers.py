r"""Finding the answer in what a model wrote.

The text is hostile by nature, so every function here takes any string, never raises, and reads it a fixed number of
times: a hundred thousand opening braces cost what a hundred thousand letters cost. What counts as an answer differs
between environments; these functions find the places to look at, and the environments decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BOX = "\\boxed{"
_PLAIN_BOX = re.compile(r"([^{}\\]*)\}")
_WRAPPER = "\\text{"
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is text, in LaTeX as here
_ANSWER_COLON = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_MARKED_ANSWER = re.compile(r"answer[*_`~\s]*[:\uff1a][*_`~\s]*", re.IGNORECASE)

#: How multiple choice questions letter their options A to D in other scripts.
_FOREIGN = {"أ": "A", "ب": "B", "ج": "C", "د": "D", "অ": "A", "ব": "B", "ড": "C", "ঢ": "D"}
_IN_WORD = r"[\w\u064b-\u0652\u0981-\u0983\u09bc-\u09cd]"  # letters, and the vowel signs of the two scripts
_FOREIGN_LETTER = re.compile(rf"(?<!{_IN_WORD})[{''.join(_FOREIGN)}](?!{_IN_WORD})")
_FULL_WIDTH = str.maketrans("\uff21\uff22\uff23\uff24", "ABCD")


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces matched; None when there is none or the last one is never closed.

    last_boxed(r"First \boxed{1}, no: \boxed{\frac{1}{2}}")   # '\\frac{1}{2}'
    """
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    if plain := _PLAIN_BOX.match(text, start):  # as most are
        return plain[1]
    depth = 1
    for token in _BRACE.finditer(text, start):
        depth += _step(token[0])
        if depth == 0:
            return text[start : token.start()]
    return None


def unwrap_text(text: str) -> str:
    r"""The text without the `\text{...}` that stands around all of it, however often, and without outer blanks.

    unwrap_text(r"\text{ \text{B} }")   # 'B'
    """
    if _WRAPPER not in text:
        return text.strip()
    closing = _partners(text)
    start, end = _trimmed(text, 0, len(text))
    while text.startswith(_WRAPPER, start) and closing.get(start + len(_WRAPPER) - 1) == end - 1:
        start, end = _trimmed(text, start + len(_WRAPPER), end - 1)
    return text[start:end]


def normalised(text: str) -> str:
    """Lower case, with every run of blanks as one space: how texts of options are compared."""
    return " ".join(text.lower().split())


def first_answer(text: str) -> str | None:
    """What follows the first "answer:" in any case, up to the end of its line; None when nothing does."""
    found = _ANSWER_COLON.search(text)
    return found[1].strip() if found else None


def marked_answers(text: str) -> Iterator[str]:
    """What follows each "Answer:", bold or not, up to the end of its line or the next one. The last comes first."""
    end = len(text)
    for found in reversed(list(_MARKED_ANSWER.finditer(text))):
        line_end = text.find("\n", found.end(), end)
        yield text[found.end() : end if line_end < 0 else line_end].strip()
        end = found.start()


def latin_letters(text: str) -> str:
    """The text with the Arabic, Bengali and full-width letters that number options written as A to D.

    Arabic and Bengali letters count only where they stand alone, since they are letters of ordinary words too.
    """
    return _FOREIGN_LETTER.sub(lambda found: _FOREIGN[found[0]], text.translate(_FULL_WIDTH))


def _step(token: str) -> int:
    return {"{": 1, "}": -1}.get(token, 0)


def _partners(text: str) -> dict[int, int]:
    """Where each opening brace is closed."""
    waiting: list[int] = []
    closing: dict[int, int] = {}
    for token in _BRACE.finditer(text):
        if token[0] == "{":
            waiting.append(token.start())
        elif token[0] == "}" and waiting:
            closing[waiting.pop()] = token.start()
    return closing


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
