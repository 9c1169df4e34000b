r"""The comparison that `math.py` runs in a child process: `math-verify`, with its known errors corrected.

| error of `math-verify` | correction |
| --- | --- |
| reads `12\,345` as a sum and `\varnothing` as a variable; cannot read `7.` | rewrite them in a form that it reads |
| takes i for a variable if the other side has no i | try i as the imaginary unit too |
| "stop" equals "post", as products of letters | words must have the same letters in the same order |
| ignores units: 5 kg equals 5 km | two known units must be the same |
| ignores the base of `101_2`: it equals 101 and `101_3` | the bases must be the same; 10 need not be written |
| "BA" equals "AB" | capital letters are names, and their order counts |
| reads `\leq 5` as 5 | a relation without its left side is not a value |
| (1, 2) equals "1, 2" and {1, 2} | a pair or an interval is not equal to a list or a set |
| takes 7 from `8=7` and from "the answer is 7 or 8" | a false equation or a choice is a wrong answer |
| rounds to six decimals: 0.0000004 equals 0.0 | the relative difference must be small too |
| cannot read `(1+√3)²` | rewrite roots, exponents and pi as LaTeX |
| needs seconds for nested roots, does not find some identities | compare values first (`math_values.py`) |
| computes `9^{9^{9}}` for ever | refuse answers that are too large by their structure (`math_size.py`) |
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from latex2sympy2_extended.sets import FiniteSet
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import And, Eq, Float, I, Interval, Tuple

from ludus.graders.answers import last_boxed
from ludus.graders.math_size import bits, levels, too_large, too_long
from ludus.graders.math_values import same_values
from ludus.graders.units import unit_of

_GOLD_FORMS = (LatexExtractionConfig(),)
_PREDICTION_FORMS = (ExprExtractionConfig(), LatexExtractionConfig())

_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,;:! ]|~|\\thinspace ?)\d{3})+(?!\d)")
_SPACED_BOX = re.compile(r"\\boxed\{\s*-?\d{1,3}(?: \d{3})+\s*\}")
_DOTTED_BOX = re.compile(r"(\\boxed\{[^{}]*\d)\.(\s*\})")
_SEPARATOR = re.compile(r"\\[,;:! ]|~|\\thinspace ?| ")
_MARKUP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\b|\\[ ,;:!]|[\s{}$~]")
_BASE = re.compile(r"[0-9A-Za-z]+(?:_\(?(\w+)\)?)?")
_RELATION = re.compile(
    r"\s*(?:\\(?:n?leq?[sq]?|n?geq?[sq]?|n?lt|n?gt|n?[lg]eqslant|n?less|n?gtr|(?:less|gtr)(?:sim|approx|eqq?gtr)|lnsim|gnsim"
    r"|ll|gg|lll|ggg|n?prec(?:eq|sim)?|n?succ(?:eq|sim)?|(?:not)?in|ni|propto|(?:sub|sup)set(?:n?eq)?)(?![a-z])"
    r"|[<>\u2264-\u226b\u2272-\u2279\u2208\u2209\u2282-\u228b\u221d])"
)
_DENIAL = re.compile(r"\\neq?\b|\\not\b|\\neg\b|\u2260|!=")
_NUMBER = r"\$?(-?\d[\d,./]*)\$?"
_ROOT = re.compile(r"\u221a\s*(?:\(([^()\n]*)\)|\{([^{}\n]*)\}|(\d+(?:\.\d+)?|[A-Za-z]))")
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b"
_LOWERED = str.maketrans(_RAISED, "0123456789-")
_EXPONENT = re.compile(rf"(?<=[\w)}}\]])[{_RAISED}]+")
_CHOICE = re.compile(rf"(?i:answer)[^\n]{{0,80}}?(?<![\w.]){_NUMBER},? or {_NUMBER}")

#: Above these relative differences two numbers are not equal, and an equation between two numbers is false.
_ROUNDING_TOLERANCE = 1e-3
_EQUATION_TOLERANCE = 1e-2

#: Values of more binary digits are not computed, not even to 50 digits.
_MOST_BITS_OF_VALUES = 1e12

_DEEPEST_PRINTED = 24

#: The answer is looked for in this many characters at the end of a text.
_MOST_TEXT = 200_000


class MathComparison(NamedTuple):
    """The result of a comparison.

    `equal` is None if it cannot be decided. `reason` says why not, or why an answer was refused.
    """

    equal: bool | None
    extracted: str | None = None
    readable: bool = True
    reason: str | None = None


def compare(expected: str, text: str, compat: bool) -> MathComparison:
    """Compare the answer in a text with the expected answer."""
    gold_text = gold_form(expected, compat)
    golds = parse(gold_text, _GOLD_FORMS, parsing_timeout=None)
    if not compat:
        text = rewritten(text[-_MOST_TEXT:])
        if reason := too_long(text, gold_text):
            return MathComparison(False, None, bool(golds), reason)
    predictions = parse(text, _PREDICTION_FORMS, parsing_timeout=None)
    if not golds or not predictions:
        return MathComparison(False, None, bool(golds))
    written_as_set = r"\{" in expected
    comparisons = [_compared(gold, prediction, compat, written_as_set) for gold in golds for prediction in predictions]
    equal: bool | None = any(comparison.equal for comparison in comparisons)
    undecided = next((comparison for comparison in comparisons if comparison.equal is None), None)
    if equal and not compat:
        equal = not ruled_out(undelimited(expected), text)
    elif undecided is not None and not equal:
        return undecided
    reason = None if equal else next((comparison.reason for comparison in comparisons if comparison.reason), None)
    return MathComparison(equal, _extracted(golds, predictions), True, reason)


def readable(expected: str) -> bool:
    """Whether an expected answer can be read, at least as a text."""
    return bool(parse(gold_form(expected, False), _GOLD_FORMS, parsing_timeout=None))


def gold_form(expected: str, compat: bool) -> str:
    """The expected answer in a box, as the library reads it."""
    text = rf"\boxed{{{undelimited(expected)}}}"
    return text if compat else rewritten(text)


def _compared(gold: Any, prediction: Any, compat: bool, written_as_set: bool) -> MathComparison:
    """Compare two expressions: by their structure, then by their values, then by the library's algebra."""
    if isinstance(gold, str) or isinstance(prediction, str):
        return MathComparison(same(gold, prediction))
    if gold == prediction:
        return MathComparison(True)
    reason, values = too_large(prediction), None
    if not compat:
        values = same_values(gold, prediction) if max(bits(gold), bits(prediction)) < _MOST_BITS_OF_VALUES else None
    if too_large(gold):
        if values is False:
            return MathComparison(False)
        return MathComparison(
            None, reason="the expected answer is too large to compute, and the answer is written otherwise"
        )
    if reason is not None and not values:
        return MathComparison(False, reason=reason)
    if compat:
        return MathComparison(same(gold, prediction))
    if values is False:
        return MathComparison(False)
    if (values or same(gold, prediction)) and not false_match(gold, prediction, written_as_set):
        return MathComparison(True)
    return MathComparison(same_complex(gold, prediction))


def undelimited(expected: str) -> str:
    r"""The expected answer without the `\( \)` or `$ $` around it."""
    text = expected.strip()
    for opening, closing in ((r"\(", r"\)"), ("$", "$")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            return text[len(opening) : -len(closing)]
    return text


def rewritten(text: str) -> str:
    """The text with misread notation rewritten in a form that the library reads."""
    text = _GROUPED.sub(lambda match: _SEPARATOR.sub("", match[0]), text)
    text = _SPACED_BOX.sub(lambda match: match[0].replace(" ", ""), text)
    text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2] or match[3] or ''}}}", text)
    text = _EXPONENT.sub(lambda match: f"^{{{match[0].translate(_LOWERED)}}}", text)
    return _DOTTED_BOX.sub(r"\1\2", text).replace(r"\varnothing", r"\emptyset")


def same(gold: Any, prediction: Any) -> bool:
    """The library's verdict on two expressions, or on two texts that are no expressions."""
    return bool(verify(gold, prediction, float_rounding=6, timeout_seconds=None))


def same_complex(gold: Any, prediction: Any) -> bool:
    """Whether two expressions are the same if i is the imaginary unit."""
    sides = [gold, prediction]
    symbols = {symbol for side in sides for symbol in getattr(side, "free_symbols", ()) if symbol.name == "i"}
    if not symbols or isinstance(gold, str) or isinstance(prediction, str):
        return False
    unit = dict.fromkeys(symbols, I)
    try:
        return same(gold.subs(unit).doit(), prediction.subs(unit).doit())
    except Exception:  # sympy cannot substitute into every expression
        return False


def false_match(gold: Any, prediction: Any, written_as_set: bool) -> bool:
    """Whether the library is wrong to call two expressions equal, judging by the expressions."""
    if isinstance(gold, str) or isinstance(prediction, str):
        return False
    return _other_form(gold, prediction, written_as_set) or _rounded(gold, prediction) or _false_equation(prediction)


def ruled_out(gold: str, text: str) -> bool:
    """Whether the text rules out an answer that the library accepts: an empty box, a denial, another unit, a choice."""
    answer = last_boxed(text)
    if answer is None:
        choice = _CHOICE.match(text, max(text.lower().rfind("answer"), 0))
        return choice is not None and choice[1] != choice[2]
    if not answer.strip() or (_DENIAL.search(answer) and not _DENIAL.search(gold)):
        return True
    if _RELATION.match(answer) and not _RELATION.match(gold):
        return True
    units = unit_of(gold), unit_of(answer)
    return _other_word(gold, answer) or _other_base(gold, answer) or (None not in units and units[0] != units[1])


def _other_word(gold: str, answer: str) -> bool:
    """Whether two words differ. Two or three small letters may be a product, in any order."""
    bare = [_MARKUP.sub("", text) for text in (gold, answer)]
    words = [word.casefold() for word in bare]
    if words[0] == words[1] or not all(word.isalpha() for word in words):
        return False
    names = len(words[0]) > 1 and all(word.isupper() for word in bare)
    return names or any(len(word) > 3 or (len(word) == 3 and word[1] in "aeiou") for word in words)


def _other_base(gold: str, answer: str) -> bool:
    """Whether two numerals have different bases. Without one, the base is 10."""
    numerals = [_BASE.fullmatch(_MARKUP.sub("", text)) for text in (gold, answer)]
    if numerals[0] is None or numerals[1] is None:
        return False
    return (numerals[0][1] or "10") != (numerals[1][1] or "10")


def _other_form(gold: Any, prediction: Any, written_as_set: bool) -> bool:
    """Whether only one side is a pair or an interval. A list without brackets has no order."""
    if isinstance(gold, (Interval, Tuple)):
        return isinstance(prediction, FiniteSet)
    return written_as_set and isinstance(gold, FiniteSet) and isinstance(prediction, (Interval, Tuple))


def _rounded(gold: Any, prediction: Any) -> bool:
    """Whether two numbers are equal only because the library rounds them."""
    inexact = any(hasattr(side, "has") and side.has(Float) for side in (gold, prediction))
    return inexact and _numbers_differ(gold, prediction, _ROUNDING_TOLERANCE)


def _false_equation(prediction: Any) -> bool:
    parts = prediction.args if isinstance(prediction, And) else (prediction,)
    return any(isinstance(part, Eq) and _numbers_differ(part.lhs, part.rhs, _EQUATION_TOLERANCE) for part in parts)


def _numbers_differ(left: Any, right: Any, tolerance: float) -> bool:
    if not (getattr(left, "is_number", False) and getattr(right, "is_number", False)):
        return False
    try:
        first, second = complex(left), complex(right)
    except (TypeError, ValueError, OverflowError):
        return False
    return abs(first - second) > tolerance * max(abs(first), abs(second))


def _extracted(golds: list[Any], predictions: list[Any]) -> str | None:
    """The text of the first prediction that is written like a gold answer, else of the first prediction.

    An expression that is nested deep takes sympy minutes to print, so it is shown as the model wrote it.
    """
    try:
        gold_texts = {str(gold).strip() for gold in golds if levels(gold) <= _DEEPEST_PRINTED}
        texts = [str(prediction) for prediction in predictions if levels(prediction) <= _DEEPEST_PRINTED]
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return None
    return next((text for text in texts if text.strip() in gold_texts), texts[0] if texts else None)
