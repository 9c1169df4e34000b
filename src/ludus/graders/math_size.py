r"""Answers that are too large to compute, found by their structure before anything is computed.

The parser leaves `9^{9^{9}}` as it was written. `too_large` bounds how many binary digits each part of such an
expression has, from the parts' operators alone: a tower of powers, the factorial of a large number or a long product
is recognised in microseconds. `too_long` does the same for the text, because the parser's time grows quickly with the
depth of brackets and with the length of a formula.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from sympy import (
    Basic,
    Float,
    Integer,
    Pow,
    Product,
    Rational,
    Sum,
    binomial,
    cosh,
    exp,
    factorial,
    factorial2,
    gamma,
    postorder_traversal,
    sinh,
    subfactorial,
)

from ludus.graders.answers import last_boxed

#: A part of an answer may have this many binary digits: about 30,000 decimal digits.
MOST_BITS = 100_000

#: A box may hold this many characters and nest its brackets this deep, unless the expected answer is larger.
MOST_CHARACTERS = 2_000
DEEPEST = 25

#: A box may list at most 2 * (parts of the expected answer) + MOST_PARTS parts: a list of guesses is not an answer.
MOST_PARTS = 20

_NAMES = {Pow: "power", exp: "power", binomial: "binomial coefficient", Product: "product"}
_FACTORIALS = (factorial, factorial2, subfactorial, gamma)
_BRACKET = re.compile(r"[([{]|[)\]}]")


def bits(expression: Any) -> float:
    """A bound of the binary digits of the largest part of an expression; a variable counts as one digit."""
    return max((size for _, size in _sizes(expression)), default=0.0)


def too_large(expression: Any, most: float = MOST_BITS) -> str | None:
    """Why an expression must not be computed, or None: the first part that may have more than `most` binary digits."""
    for part, size in _sizes(expression):
        if size > most:
            kind = next((name for kind, name in _NAMES.items() if isinstance(part, kind)), None)
            name = kind or ("factorial" if isinstance(part, _FACTORIALS) else "number")
            return f"the answer holds a {name} that may have more than {int(most * math.log10(2)):,} digits"
    return None


def levels(expression: Any) -> int:
    """How deep the parts of an expression are nested."""
    known: dict[Any, int] = {}
    deepest = 0
    for part in () if isinstance(expression, str) else postorder_traversal(expression):
        level = 1 + max((known.get(argument, 0) for argument in getattr(part, "args", ())), default=0)
        deepest = max(deepest, level)
        if getattr(part, "__hash__", None) is not None:  # a matrix has none
            known[part] = level
    return deepest


def too_long(text: str, expected: str) -> str | None:
    """Why a text must not be parsed, or None: its last box is too long or lists too much, or brackets nest too deep.

    Without a box each line counts.
    """
    box = last_boxed(text)
    most = max(MOST_CHARACTERS, 2 * len(expected))
    if box is not None and len(box) > most:
        return f"the answer has {len(box):,} characters, more than {most:,}"
    parts, most = _parts(box or ""), MOST_PARTS + 2 * _parts(expected)
    if parts > most:
        return f"the answer lists {parts:,} parts, more than {most:,}"
    deepest = max(DEEPEST, 2 * _depth(expected))
    if any(_depth(line) > deepest for line in ([box] if box is not None else text.splitlines())):
        return f"the answer nests brackets more than {deepest} deep"
    return None


def _parts(text: str) -> int:
    return 1 + text.count(",") + text.count(";")


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.finditer(text):
        depth = depth + 1 if bracket[0] in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _sizes(expression: Any) -> Iterator[tuple[Any, float]]:
    """Each part of an expression with a bound of its binary digits, inner parts first."""
    known: dict[Any, float] = {}
    if isinstance(expression, str):
        return
    for part in postorder_traversal(expression):
        if getattr(part, "__hash__", None) is None:  # a matrix or a list, whose elements were seen
            continue
        known[part] = size = _size(part, [known.get(argument, 1.0) for argument in getattr(part, "args", ())])
        yield part, size


def _size(part: Any, sizes: list[float]) -> float:
    if isinstance(part, Integer):
        return float(part.p.bit_length())
    if isinstance(part, Rational):
        return float(max(part.p.bit_length(), part.q.bit_length()))
    if isinstance(part, Float):
        return float(abs(part._mpf_[2]) + part._mpf_[3])  # its exponent and the digits of its mantissa
    if not isinstance(part, Basic):
        return 1.0
    if not sizes:
        return 2.0 if part.is_NumberSymbol else 1.0  # e and pi are less than 4
    if part.is_Add:
        return max(sizes) + math.log2(len(sizes))
    if part.is_Mul:
        return sum(sizes)
    if isinstance(part, Pow):
        return max(1.0, sizes[0]) * max(1.0, _magnitude(part.exp, sizes[1]))
    if isinstance(part, (exp, sinh, cosh)):
        return 1.5 * _magnitude(part.args[0], sizes[0])
    if isinstance(part, _FACTORIALS):
        return _magnitude(part.args[0], sizes[0]) * max(1.0, sizes[0])
    if isinstance(part, binomial):
        chosen = _magnitude(part.args[1], sizes[1]) * max(1.0, sizes[0])
        return max(sizes[0], min(_magnitude(part.args[0], sizes[0]), chosen))
    if isinstance(part, Product):
        return sizes[0] * max(1.0, *(_magnitude(limit[-1], bits(limit[-1])) for limit in part.limits))
    if isinstance(part, Sum):
        return sum(sizes)
    return max(sizes)


def _magnitude(part: Any, size: float) -> float:
    """A bound of the absolute value of a part that has `size` binary digits."""
    if isinstance(part, Rational) and size < 1000:
        return abs(float(part))
    return 2.0**size if size < 1000 else math.inf
