"""The grading modes: where in a text to look for the chosen letter.

Each mode takes the text, the options by letter, and `compat`: whether to reproduce known errors of the reference.
It returns the letter of an option, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ludus.graders.answers import (
    first_answer,
    last_boxed,
    latin_letters,
    marked_answers,
    normalised,
    unwrap_text,
)

Choices = dict[str, str]
Mode = Callable[[str, Choices, bool], str | None]

_LONE_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LABEL = re.compile(r"([A-Z])\s*[:).\-]")
_NEGATION = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|except|excluding|without|but|other than|rather than|instead of)\b"
    r"|n['\u2019]t\b|[¬≠]|\\neq?\b|\\l?not\b|\\neg\b"
)
_NEGATION_AFTER = re.compile(  # after an option: "limestone, no doubt" and "limestone but only just" are not negations
    r"\b(?:not|never|neither|cannot|wrong)\b|\bno\b(?!\s+(?:doubt|question|problem))|n['\u2019]t\b|[¬≠]|\\neq?\b|\\l?not\b"
)
_NUMBER_CONTINUES = re.compile(r"\d|[.,/]\d")

_PRONOUN = re.compile(r"\bI\s+(?:think|believe|choose|pick|select|guess|would|say|am)\b")
_PRONOUN_START = re.compile(r"I\s+[a-z]")
_ARTICLE_START = re.compile(r"a\s+[a-z]")
_LEADING_LETTER = re.compile(r"([A-Za-z])(?![A-Za-z0-9'\u2019])")
_CAPITAL = re.compile(r"(?<![A-Za-z0-9])([A-Z])(?![A-Za-z0-9'\u2019])")
_BETWEEN = r"[)\]]?(?:\s*[/|&,;]\s*|\s+)(?:(?i:or|and)\s+)?[(\[]?"
_LETTER_PAIRS = tuple(
    re.compile(rf"(?<![A-Za-z0-9])([{case}]){_BETWEEN}(?=([{case}])(?![A-Za-z0-9'\u2019]))") for case in ("A-Z", "a-z")
)
_EMPHASIS = re.compile(r"[*_`~]")
_TRIMMED = " \t\r\n.,;:!?()[]{}<>\"'$\\/|&-\u2013\u2014"


def choices_of(options: list[dict[str, str | None]]) -> Choices:
    """The options by letter. A key that is not a letter and an option without a text are left out."""
    return {
        key.upper(): text
        for option in options
        for key, text in option.items()
        if text is not None and len(key) == 1 and key.isalpha()
    }


def strict_single_letter_boxed(text: str, choices: Choices, compat: bool = False) -> str | None:
    r"""The last box holds one capital and no other letter, or begins with a capital as a label: `\boxed{B: basalt}`."""
    return _boxed_letter(unwrap_text(last_boxed(text) or ""), choices)


def lenient_boxed(text: str, choices: Choices, compat: bool = False) -> str | None:
    """The letter of the strict mode; else the only option whose text stands in the last box."""
    content = unwrap_text(last_boxed(text) or "")
    letter, box = _boxed_letter(content, choices), normalised(content)
    if letter is not None or not box:
        return letter
    if compat:
        named = {letter for letter, option in choices.items() if normalised(option) in box}
    else:
        named = _named(box, choices)
    return named.pop() if len(named) == 1 else None


def lenient_answer_colon(text: str, choices: Choices, compat: bool = False) -> str | None:
    """After the first "answer:", the rest of the line is one letter in either case, or the text of an option."""
    return _exact(unwrap_text(first_answer(text) or ""), choices)


def lenient_answer_colon_md(text: str, choices: Choices, compat: bool = False) -> str | None:
    """After an "Answer:" that may be bold, a letter in any text. The last answer that names an option counts."""
    picks = (_picked(answer, choices, compat) for answer in marked_answers(text))
    return next((letter for letter in picks if letter is not None), None)


MODES: dict[str, Mode] = {
    mode.__name__: mode
    for mode in (strict_single_letter_boxed, lenient_boxed, lenient_answer_colon, lenient_answer_colon_md)
}


def templated_choice(captured: str, choices: Choices) -> str | None:
    """The choice in what a row's pattern captured: any single letter, or the text of an option."""
    letter = latin_letters(captured).strip().upper()
    return letter if len(letter) == 1 and letter.isalpha() else _exact(captured, choices)


def cut_from_word(text: str, spans: list[tuple[int, int]]) -> bool:
    """Whether a pattern matched a letter inside a word, as `answer is ([A-D])` matches the b of "answer is banal"."""
    (match_start, match_end), (start, end) = spans[0], spans[-1]
    if end - start != 1 or not _joins(text[start]):
        return False
    after = _joins(text[end : end + 1]) and end == match_end
    return after or (start > 0 and _joins(text[start - 1]) and start == match_start)


def _boxed_letter(content: str, choices: Choices) -> str | None:
    match = _LONE_CAPITAL.fullmatch(content) or _LABEL.match(content)
    return _known(match[1], choices) if match else None


def _known(letter: str, choices: Choices) -> str | None:
    return letter if letter in choices else None


def _exact(candidate: str, choices: Choices) -> str | None:
    answer = normalised(candidate)
    letter = _known(answer.upper(), choices)
    if letter is not None or not answer:
        return letter
    return next((letter for letter, option in choices.items() if normalised(option) == answer), None)


def _picked(answer: str, choices: Choices, compat: bool) -> str | None:
    """The letter that an answer names; None if it lists several."""
    text = _EMPHASIS.sub("", latin_letters(answer))
    if not compat:
        text = _PRONOUN.sub("", text)
    text = text.strip(_TRIMMED)
    for pairs in _LETTER_PAIRS:
        for first, second in pairs.findall(text):
            if first != second and first.upper() in choices and second.upper() in choices:
                return None
    leading = None if _ARTICLE_START.match(text) and not compat else _LEADING_LETTER.match(text)
    if leading and not compat and not _PRONOUN_START.match(text):
        return _known(leading[1].upper(), choices)  # "E (not D)" means E, even if E is not an option
    candidates = [leading[1].upper()] if leading else []
    candidates += reversed(_CAPITAL.findall(text))
    return next((letter for letter in candidates if letter in choices), None)


def _named(box: str, choices: Choices) -> set[str]:
    """The letters of the options that a box names as whole words. None inside a longer option; none if negated."""
    mentions = sorted(
        (start, -end, letter) for letter, option in choices.items() for start, end in _mentions(normalised(option), box)
    )
    named, rest, covered = set(), [], 0
    widest = (0, 0)
    for start, minus_end, letter in mentions:
        span = (start, -minus_end)
        if span[1] > covered or span == widest:
            named.add(letter)
            rest.append(box[covered:start])
            covered, widest = span[1], span
    negated = _NEGATION.search(" ".join(rest)) or _NEGATION_AFTER.search(box, covered)
    return set() if negated else named


def _mentions(option: str, box: str) -> Iterator[tuple[int, int]]:
    start = box.find(option) if option else -1
    while start >= 0:
        end = start + len(option)
        if _stands_alone(box, start, end):
            yield start, end
        start = box.find(option, start + 1)


def _stands_alone(box: str, start: int, end: int) -> bool:
    """Whether a mention is not part of a longer word or number. A plural counts as the same word."""
    before, tail = box[max(start - 2, 0) : start], box[end : end + 3]
    if _joins(box[start]) and _joins(before[-1:]):
        return False
    if box[start].isdigit() and (
        before[-1:] in {"-", "\u2212"} or (before[-1:] in {".", ","} and before[:1].isdigit())
    ):
        return False
    if box[end - 1].isdigit():
        return not _NUMBER_CONTINUES.match(tail)
    endings = ("", "s", "es") if _joins(box[end - 1]) else ()
    return not endings or any(tail.startswith(it) and not _joins(tail[len(it) : len(it) + 1]) for it in endings)


def _joins(character: str) -> bool:
    """Whether a character forms a word or number with its neighbours, in scripts that put spaces between words."""
    return character.isdigit() or character.lower() != character.upper()
