"""What the library's scorers are known to get wrong, put right.

A repair sees the answer, the entry (question, answer, metadata) and the library's reward, and returns the reward that
the answer deserves. It is as narrow as the mistake: whatever the library rewards on purpose, such as a part of a grid,
stays as it is. The README lists what is repaired.
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
_SUM = re.compile(r"[0-9+*/()\s-]+", re.ASCII)
_DENIAL = re.compile(r"\b(?:but|either|except|neither|never|nor|not|or)\b|n['\u2019]t\b", re.IGNORECASE)
_TRUTHS = ({"true", "false"}, {"yes", "no"})
_TIMES = "\u00d7"
_FULL = 1.0 - 1e-9


def repaired(family: str, answer: str, entry: Entry, reward: float) -> float:
    """The reward for an answer to which the library gave `reward`."""
    repair = _REPAIRS.get(family)
    if repair is not None:
        reward = repair(answer, entry, reward)
    if 0.0 < reward < 1.0 and _guesses(answer, entry.get("answer")):
        return 0.0
    return reward


def _guesses(answer: str, key: Any) -> bool:
    """Whether an answer that holds the key holds others beside it: more numbers than the key has, or yes and no."""
    if not isinstance(key, str) or not key or key not in answer:
        return False
    if len(_DIGITS.findall(answer)) > len(_DIGITS.findall(key)) > 0:
        return True
    words = set(_WORD.findall(answer.lower()))
    return any(key.lower() in truths and truths <= words for truths in _TRUTHS)


def _board(answer: str, entry: Entry, reward: float) -> float:
    """`arc_agi`, `rearc`: a board of a row that went through JSON is made of lists, and never equals one of tuples."""
    board = [line.split() for line in answer.splitlines() if not line.strip().startswith("Shape: ")]
    return 1.0 if board == [[str(cell) for cell in row] for row in entry["metadata"]["output"]] else reward


def _calendar(answer: str, entry: Entry, reward: float) -> float:
    """`calendar_arithmetic`: the relative error has the sign of the key, so wrong answers to -1 earn e to the many."""
    try:
        given, key = int(answer), int(entry["answer"])
    except ValueError:
        return reward
    return math.exp(5 * abs(given - key) / key) if key < 0 < reward else reward


def _chance(answer: str, entry: Entry, reward: float) -> float:
    """`coin_flip`: what agrees as far as the shorter number goes is taken as equal, so 0 is any probability.

    A number that lacks only the last digit stays equal.
    """
    if reward < 1.0:
        return reward
    given, key = (float(Fraction(text.replace(",", ""))) for text in (answer, entry["answer"]))
    shorter, longer = sorted((f"{given:.10g}", f"{key:.10g}"), key=len)
    return reward if abs(given - key) <= 1e-4 or len(longer) - len(shorter) < 2 else len(shorter) / len(longer)


def _complex(answer: str, entry: Entry, reward: float) -> float:
    """`complex_arithmetic`: no distance is larger than the one from a number that is none."""
    return 0.0 if "nan" in answer.replace(" ", "").lower() else reward


def _countdown(answer: str, entry: Entry, reward: float) -> float:
    """`countdown`: numbers can be smuggled in, as in 1e3, and operators that the puzzle does not offer."""
    return reward if reward < 1.0 or _plain(answer) else 0.05


def _halting(answer: str, entry: Entry, reward: float) -> float:
    """`game_of_life_halting`: every text is as true as "False" is. A word may be cut short, but not beyond doubt."""
    words = {word for word in _WORD.findall(answer.lower()) if len(word) > 2}
    said = {truth for truth in ("true", "false") if any(truth.startswith(word) for word in words)}
    return float(said == {str(entry["answer"]).strip().lower()})


def _formula(answer: str, entry: Entry, reward: float) -> float:
    """Integrals and products: a formula can be asked to work itself out, as in `integrate(x**2, x)`.

    What the key itself leaves to be worked out may be left by the answer too.
    """
    asked = {name for name in _NAME.findall(answer) if len(name) > 1 and not elementary(name)}
    return reward if asked <= set(_NAME.findall(entry["answer"])) else 0.0


def _knights(answer: str, entry: Entry, reward: float) -> float:
    """`knights_knaves`: only names and roles are looked at, so whatever is denied of them all counts as said."""
    return 0.0 if _DENIAL.search(answer) else reward


def _jumble(answer: str, entry: Entry, reward: float) -> float:
    """`letter_jumble`: words after the last one are not looked at."""
    return _diluted(reward, len(entry["answer"].split()), len(answer.split()))


def _words(answer: str, entry: Entry, reward: float) -> float:
    """`word_sorting`: words after the last one are not looked at."""
    return _diluted(reward, len(entry["metadata"]["sorted_words"]), answer.count(",") + 1)


def _primes(answer: str, entry: Entry, reward: float) -> float:
    """`prime_factorization`: the number itself has the right product, and is no factorisation."""
    if reward != 0.5:
        return reward
    factors = [int(factor) for factor in answer.split(_TIMES) if factor.strip()]
    return reward if all(factor > 0 for factor in factors) and sum(factor > 1 for factor in factors) > 1 else 0.01


def _puzzle24(answer: str, entry: Entry, reward: float) -> float:
    """`puzzle24`: any four numbers do, and what is left after the point is not looked at."""
    if reward < 1.0:
        return reward
    numbers = sorted(int(number) for number in re.findall(r"\d+", answer))
    right = _plain(answer) and numbers == sorted(entry["metadata"]["numbers"]) and evaluate(answer) == 24
    return reward if right else 0.01


def _sorted_numbers(answer: str, entry: Entry, reward: float) -> float:
    """`number_sorting`: no number is far from NaN, or out of order with it."""
    if reward < 1.0:
        return reward
    return reward if all(math.isfinite(float(number)) for number in json.loads(answer.replace("'", '"'))) else 0.0


def _plain(answer: str) -> bool:
    """Whether a sum is made of whole numbers, the four operators and brackets."""
    return _SUM.fullmatch(answer) is not None and "**" not in answer and "//" not in answer


def _diluted(reward: float, wanted: int, given: int) -> float:
    return reward * wanted / given if reward >= _FULL and given > wanted else reward


_REPAIRS: dict[str, Repair] = {
    "arc_agi": _board,
    "calendar_arithmetic": _calendar,
    "coin_flip": _chance,
    "complex_arithmetic": _complex,
    "countdown": _countdown,
    "game_of_life_halting": _halting,
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
