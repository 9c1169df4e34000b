r"""What `math.py` runs in a child process: `math-verify`, with the mistakes that matter put right around it.

| the library | here |
| --- | --- |
| reads `12\,345` as a sum, `\varnothing` as a variable, and not `7.` | these are written as it expects them |
| takes i for a variable where the other side has none | i is tried as the imaginary unit |
| finds "stop" equal to "post", as products of letters | words are equal when their letters are, in order |
| forgets units, so that 5 kg is 5 km | two units that are both known must be the same |
| forgets the base of `101_2` | two bases must be the same |
| finds (1, 2) equal to "1, 2" and to {1, 2} | a pair or an interval is neither a list nor a set |
| takes the last side of `8=7`, the first of "the answer is 7 or 8" | a false equation and a choice answer nothing |
| rounds at the sixth decimal, so that 0.0000004 is 0.0 | the difference must be small beside the numbers too |
"""

from __future__ import annotations

import re
from typing import Any

from latex2sympy2_extended.sets import FiniteSet
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import And, Eq, Float, I, Interval, Tuple

from ludus.graders.answers import last_boxed
from ludus.graders.units import unit_of

_GOLD = (LatexExtractionConfig(),)
_PREDICTION = (ExprExtractionConfig(), LatexExtractionConfig())

_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,;:! ]|~|\\thinspace ?)\d{3})+(?!\d)")
_SPACED_BOX = re.compile(r"\\boxed\{\s*-?\d{1,3}(?: \d{3})+\s*\}")
_DOTTED_BOX = re.compile(r"(\\boxed\{[^{}]*\d)\.(\s*\})")
_SEPARATOR = re.compile(r"\\[,;:! ]|~|\\thinspace ?| ")
_MARKUP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\b|\\[ ,;:!]|[\s{}$~]")
_BASE = re.compile(r"[0-9A-Za-z]+_\{?(\d+)\}?")
_DENIAL = re.compile(r"\\neq?\b|\\not\b|\\neg\b|\u2260|!=")
_NUMBER = r"\$?(-?\d[\d,./]*)\$?"
_CHOICE = re.compile(rf"(?i:answer)[^\n]{{0,80}}?(?<![\w.]){_NUMBER},? or {_NUMBER}")
_SMALL = 1e-3
_LIE = 1e-2


def compare(expected: str, text: str, compat: bool) -> tuple[bool, str | None, bool]:
    """Whether the text's answer is the expected one, the answer as it was understood, and whether there was a key."""
    gold_text = rf"\boxed{{{undelimited(expected)}}}"
    if not compat:
        gold_text, text = spelled(gold_text), spelled(text)
    predictions = parse(text, _PREDICTION, parsing_timeout=None)
    golds = parse(gold_text, _GOLD, parsing_timeout=None)
    if not golds or not predictions:
        return False, None, bool(golds)
    pairs = [(gold, prediction) for gold in golds for prediction in predictions]
    if compat:
        equal = any(same(*pair) for pair in pairs)
    else:
        written_as_set = r"\{" in expected
        equal = any((same(*pair) and not mistaken(*pair, written_as_set)) or same_complex(*pair) for pair in pairs)
        equal = equal and not contradicted(undelimited(expected), text)
    return equal, _extracted(golds, predictions), True


def undelimited(expected: str) -> str:
    r"""The expected answer without the `\( \)` or `$ $` around it."""
    text = expected.strip()
    for opening, closing in ((r"\(", r"\)"), ("$", "$")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            return text[len(opening) : -len(closing)]
    return text


def spelled(text: str) -> str:
    """The text with what the library cannot read written as it expects it."""
    text = _GROUPED.sub(lambda found: _SEPARATOR.sub("", found[0]), text)
    text = _SPACED_BOX.sub(lambda found: found[0].replace(" ", ""), text)
    return _DOTTED_BOX.sub(r"\1\2", text).replace(r"\varnothing", r"\emptyset")


def same(gold: Any, prediction: Any) -> bool:
    """The library's verdict on two expressions, or on two texts that it could not read."""
    return bool(verify(gold, prediction, float_rounding=6, timeout_seconds=None))


def same_complex(gold: Any, prediction: Any) -> bool:
    """Whether two expressions are the same once i is the imaginary unit."""
    sides = [gold, prediction]
    symbols = {symbol for side in sides for symbol in getattr(side, "free_symbols", ()) if symbol.name == "i"}
    if not symbols or isinstance(gold, str) or isinstance(prediction, str):
        return False
    unit = dict.fromkeys(symbols, I)
    try:
        return same(gold.subs(unit).doit(), prediction.subs(unit).doit())
    except Exception:  # not every expression can be substituted into; then it is not shown to be the same
        return False


def mistaken(gold: Any, prediction: Any, written_as_set: bool) -> bool:
    """Whether two expressions that were found equal are not: another form, only equal when rounded, or a lie."""
    if isinstance(gold, str) or isinstance(prediction, str):
        return False
    return _other_form(gold, prediction, written_as_set) or _other_number(gold, prediction) or _false(prediction)


def contradicted(gold: str, text: str) -> bool:
    """Whether the wording rules out an answer that was found equal: an empty box, a denial, another unit, a choice."""
    answer = last_boxed(text)
    if answer is None:
        choice = _CHOICE.match(text, max(text.lower().rfind("answer"), 0))
        return choice is not None and choice[1] != choice[2]
    if not answer.strip() or (_DENIAL.search(answer) and not _DENIAL.search(gold)):
        return True
    units = unit_of(gold), unit_of(answer)
    return _other_word(gold, answer) or _other_base(gold, answer) or (None not in units and units[0] != units[1])


def _other_word(gold: str, answer: str) -> bool:
    words = [_MARKUP.sub("", text).casefold() for text in (gold, answer)]
    if words[0] == words[1] or not all(word.isalpha() for word in words):
        return False
    return any(len(word) > 3 or (len(word) == 3 and word[1] in "aeiou") for word in words)


def _other_base(gold: str, answer: str) -> bool:
    bases = [_BASE.fullmatch(text.strip(" $")) for text in (gold, answer)]
    return bases[0] is not None and bases[1] is not None and bases[0][1] != bases[1][1]


def _other_form(gold: Any, prediction: Any, written_as_set: bool) -> bool:
    """Whether one is a pair or an interval and the other is not. A list without brackets may stand for any order."""
    if isinstance(gold, (Interval, Tuple)):
        return isinstance(prediction, FiniteSet)
    return written_as_set and isinstance(gold, FiniteSet) and isinstance(prediction, (Interval, Tuple))


def _other_number(gold: Any, prediction: Any) -> bool:
    """Whether two numbers are only equal because both were rounded."""
    inexact = any(hasattr(side, "has") and side.has(Float) for side in (gold, prediction))
    return inexact and _apart(gold, prediction, _SMALL)


def _false(prediction: Any) -> bool:
    equations = prediction.args if isinstance(prediction, And) else (prediction,)
    return any(isinstance(each, Eq) and _apart(each.lhs, each.rhs, _LIE) for each in equations)


def _apart(left: Any, right: Any, tolerance: float) -> bool:
    if not (getattr(left, "is_number", False) and getattr(right, "is_number", False)):
        return False
    try:
        first, second = complex(left), complex(right)
    except (TypeError, ValueError, OverflowError):
        return False
    return abs(first - second) > tolerance * max(abs(first), abs(second))


def _extracted(golds: list[Any], predictions: list[Any]) -> str | None:
    """The prediction that reads like a key, else the first."""
    try:
        keys, texts = {str(gold).strip() for gold in golds}, [str(prediction) for prediction in predictions]
    except ValueError:  # a number with more digits than Python writes out
        return None
    return next((text for text in texts if text.strip() in keys), texts[0])
