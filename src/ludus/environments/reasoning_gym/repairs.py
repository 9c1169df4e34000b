"""Corrections of known errors in the library's scorers.

A repair gets the answer, the entry (question, answer, metadata) and the library's reward, and returns the corrected
reward. It changes only the error: rewards that the library gives on purpose, such as for a part of a grid, stay. The
README lists the repairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ludus.environments.reasoning_gym.evaluation import elementary, evaluate

Entry = dict[str, Any]
Repair = Callable[[str, Entry, float], float]

_DIGITS = re.compile(r"\d+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"\w+")
_ARITHMETIC = re.compile(r"[0-9+*/()\s-]+", re.ASCII)
_NEGATION = re.compile(r"\b(?:but|either|except|neither|never|nor|not|or)\b|n['\u2019]t\b", re.IGNORECASE)
_SIGNED = re.compile(r"(?<![\w.])[-\u2212]?\d+(?:\.\d+)?", re.ASCII)
_LOGIC = {"propositional_logic"}  # formulas, in which "not" and "or" are operators
_OPPOSITES = ({"true", "false"}, {"yes", "no"})
_TIMES = "\u00d7"
_FULL = 1.0 - 1e-9


def repaired(family: str, answer: str, entry: Entry, reward: float) -> float:
    """The reward for an answer to which the library gave `reward`."""
    repair = _REPAIRS.get(family)
    if repair is not None:
        reward = repair(answer, entry, reward)
    key = entry.get("answer")
    if reward > 0.0 and (_denies(family, answer, key) or (repair is not _formula and _guesses(answer, key))):
        return 0.0
    return reward


def _denies(family: str, answer: str, key: Any) -> bool:
    """Whether an answer denies what it says or leaves it open, as "not True" and "7 or 8": the key has no such word."""
    if not isinstance(key, str) or family in _LOGIC:
        return False
    return len(_NEGATION.findall(answer)) > len(_NEGATION.findall(key))


def _guesses(answer: str, key: Any) -> bool:
    """Whether an answer contains the key and other guesses: more numbers than the key has, or both yes and no."""
    if not isinstance(key, str) or not key or key not in answer:
        return False
    if len(_DIGITS.findall(answer)) > len(_DIGITS.findall(key)) > 0:
        return True
    words = set(_WORD.findall(answer.lower()))
    return any(key.lower() in pair and pair <= words for pair in _OPPOSITES)


def _board(answer: str, entry: Entry, reward: float) -> float:
    """`arc_agi`, `rearc`: the library compares with tuples, and a board that was read from JSON has lists."""
    board = [line.split() for line in answer.splitlines() if not line.strip().startswith("Shape: ")]
    return 1.0 if board == [[str(cell) for cell in row] for row in entry["metadata"]["output"]] else reward


def _calendar(answer: str, entry: Entry, reward: float) -> float:
    """`calendar_arithmetic`: the library's relative error is negative if the key is, so its reward grows with error."""
    try:
        number, key = int(answer), int(entry["answer"])
    except ValueError:
        return reward
    return math.exp(5 * abs(number - key) / key) if key < 0 < reward else reward


def _probability(answer: str, entry: Entry, reward: float) -> float:
    """`coin_flip`: the library compares only the digits of the shorter number, so that 0 equals any probability.

    A number that lacks only the last digit still counts as equal.
    """
    if reward < 1.0:
        return reward
    number, key = (float(Fraction(text.replace(",", ""))) for text in (answer, entry["answer"]))
    shorter, longer = sorted((f"{number:.10g}", f"{key:.10g}"), key=len)
    return reward if abs(number - key) <= 1e-4 or len(longer) - len(shorter) < 2 else len(shorter) / len(longer)


def _complex(answer: str, entry: Entry, reward: float) -> float:
    """`complex_arithmetic`: the library accepts NaN, because no comparison with NaN is true."""
    return 0.0 if "nan" in answer.replace(" ", "").lower() else reward


def _countdown(answer: str, entry: Entry, reward: float) -> float:
    """`countdown`: the library accepts other numbers, as in 1e3, and operators that the puzzle does not offer."""
    return reward if reward < 1.0 or _is_plain_arithmetic(answer) else 0.05


def _halting(answer: str, entry: Entry, reward: float) -> float:
    """`game_of_life_halting`: the library accepts any text. Words may be shortened to three letters, as "fal"."""
    words = {word for word in _WORD.findall(answer.lower()) if len(word) > 2}
    truths = {truth for truth in ("true", "false") if any(truth.startswith(word) for word in words)}
    return float(truths == {str(entry["answer"]).strip().lower()})


def _formula(answer: str, entry: Entry, reward: float) -> float:
    """Integrals and products: the library accepts formulas that SymPy has to compute, as `integrate(x**2, x)`.

    An answer may use such a function only if the key uses it too.
    """
    computing = {name for name in _NAME.findall(answer) if len(name) > 1 and not elementary(name)}
    return reward if computing <= set(_NAME.findall(entry["answer"])) else 0.0


def _number(answer: str, entry: Entry, reward: float) -> float:
    """`gsm_symbolic`: the library reads only the first number, and not its sign."""
    values = {float(number.replace("\u2212", "-")) for number in _SIGNED.findall(answer)}
    return reward if reward < 1.0 or values == {float(entry["answer"])} else 0.0


def _knights(answer: str, entry: Entry, reward: float) -> float:
    """`knights_knaves`: the library reads only names and roles, and ignores a negation or an "or"."""
    return 0.0 if _NEGATION.search(answer) else reward


def _jumble(answer: str, entry: Entry, reward: float) -> float:
    """`letter_jumble`: the library ignores words after the expected ones."""
    return _diluted(reward, len(entry["answer"].split()), len(answer.split()))


def _words(answer: str, entry: Entry, reward: float) -> float:
    """`word_sorting`: the library ignores words after the expected ones."""
    return _diluted(reward, len(entry["metadata"]["sorted_words"]), answer.count(",") + 1)


def _primes(answer: str, entry: Entry, reward: float) -> float:
    """`prime_factorization`: the library rewards the number itself, which has the right product."""
    if reward != 0.5:
        return reward
    factors = [int(factor) for factor in answer.split(_TIMES) if factor.strip()]
    return reward if all(factor > 0 for factor in factors) and sum(factor > 1 for factor in factors) > 1 else 0.01


def _puzzle24(answer: str, entry: Entry, reward: float) -> float:
    """`puzzle24`: the library accepts any four numbers, and ignores the digits after the decimal point."""
    if reward < 1.0:
        return reward
    numbers = sorted(int(number) for number in re.findall(r"\d+", answer))
    right = _is_plain_arithmetic(answer) and numbers == sorted(entry["metadata"]["numbers"]) and evaluate(answer) == 24
    return reward if right else 0.01


def _sorted_numbers(answer: str, entry: Entry, reward: float) -> float:
    """`number_sorting`: the library accepts NaN, because no comparison with NaN is true."""
    if reward < 1.0:
        return reward
    return reward if all(math.isfinite(float(number)) for number in json.loads(answer.replace("'", '"'))) else 0.0


def _is_plain_arithmetic(answer: str) -> bool:
    """Whether an expression contains only whole numbers, the four operators and brackets."""
    return _ARITHMETIC.fullmatch(answer) is not None and "**" not in answer and "//" not in answer


def _diluted(reward: float, expected: int, answered: int) -> float:
    return reward * expected / answered if reward >= _FULL and answered > expected else reward


_REPAIRS: dict[str, Repair] = {
    "arc_agi": _board,
    "calendar_arithmetic": _calendar,
    "coin_flip": _probability,
    "complex_arithmetic": _complex,
    "countdown": _countdown,
    "game_of_life_halting": _halting,
    "gsm_symbolic": _number,
    "intermediate_integration": _formula,
    "knights_knaves": _knights,
    "letter_jumble": _jumble,
    "number_sorting": _sorted_numbers,
    "polynomial_multiplication": _formula,
    "prime_factorization": _primes,
    "puzzle24": _puzzle24,
    "rearc": _board,
    "simple_integration": _formula,
    "word_sorting": _words,
}
