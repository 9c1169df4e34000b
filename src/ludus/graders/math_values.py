r"""Whether two expressions have the same values: computed to 50 digits, before any algebra is tried.

Algebra (`simplify`) may take minutes to find that `\sin x/(1+\cos x)` is `\tan(x/2)`, and may not find it at all. The
values at a few points show it in a millisecond. `evalf` of sympy raises its precision until 50 digits are certain.
Values that agree to 150 digits are equal, unless a part is so large or so small that 150 digits cannot tell.

Points prove nothing about functions with several branches: `\lfloor n/2\rfloor` and `\lfloor n/3\rfloor` agree at many.
There only a difference counts, and the library's algebra decides the rest.
"""

from __future__ import annotations

import math
from typing import Any

from latex2sympy2_extended.sets import FiniteSet as Elements
from math_verify.grader import is_assignment_relation, is_equation, take_first_relation, take_last_relation
from sympy import (
    Abs,
    Add,
    Expr,
    FiniteSet,
    Float,
    Heaviside,
    I,
    Interval,
    Max,
    Min,
    Mod,
    Mul,
    Piecewise,
    Pow,
    Rational,
    S,
    Symbol,
    Tuple,
    arg,
    ceiling,
    coth,
    csch,
    erf,
    erfc,
    floor,
    frac,
    im,
    postorder_traversal,
    re,
    sech,
    sign,
    tanh,
)
from sympy.concrete.expr_with_limits import ExprWithLimits
from sympy.core.function import AppliedUndef, Derivative
from sympy.functions.elementary.hyperbolic import InverseHyperbolicFunction
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction
from sympy.series.limits import Limit

from ludus.graders.math_size import MOST_BITS, bits

_DIGITS = 50
_MOST_DIGITS = 150
_DIGITS_OF_EXTREMES = 2000

#: The first variable's value at each point; the other variables get other values. Negative ones distinguish x from |x|.
_POINTS = (
    Rational(17, 11),
    Rational(-23, 13),
    Rational(5, 19),
    Rational(-7, 29),
    Rational(71, 23),
    Rational(1009, 7),
    Rational(-2003, 13),
)

#: Parts whose values take long to compute: left to the library.
_OPERATORS = (ExprWithLimits, Limit, Derivative, AppliedUndef)

#: Functions with several branches, or with a limit that they come too close to.
_BRANCHED = (
    *(floor, ceiling, frac, Mod, Min, Max, Abs, sign, Heaviside, Piecewise, re, im, arg),
    *(InverseTrigonometricFunction, InverseHyperbolicFunction, tanh, coth, sech, csch, erf, erfc),
)

#: A term of a sum may be this many decimal digits smaller than another.
_MOST_DECIMALS = 60


def same_values(gold: Any, prediction: Any) -> bool | None:
    """Whether two answers have the same values; None if their values cannot tell.

    Two lists, sets or intervals are compared part by part, and `x = 5` with 5 by its right side.
    """
    gold, prediction = _right_sides(gold, prediction)
    if isinstance(gold, Interval) and isinstance(prediction, Interval):
        if (gold.left_open, gold.right_open) != (prediction.left_open, prediction.right_open):
            return None
        return _same_lists([gold.start, gold.end], [prediction.start, prediction.end])
    if isinstance(gold, Tuple) and isinstance(prediction, Tuple):
        return _same_lists(gold.args, prediction.args)
    if isinstance(gold, FiniteSet) and isinstance(prediction, FiniteSet):
        return _same_sets(_elements(gold), _elements(prediction))
    if isinstance(gold, Expr) and isinstance(prediction, Expr):
        return _same_expressions(gold, prediction)
    return None


def _right_sides(gold: Any, prediction: Any) -> tuple[Any, Any]:
    """Two equations for the same variable, or an equation and a value, as two values."""
    if is_equation(prediction) and not is_equation(gold):
        return gold, take_last_relation(prediction).rhs
    if is_assignment_relation(gold) and not is_equation(prediction):
        return take_last_relation(gold).rhs, prediction
    if is_assignment_relation(gold) and is_assignment_relation(prediction):
        firsts = [take_first_relation(equation).lhs for equation in (gold, prediction)]
        if firsts[0] == firsts[1]:
            return take_last_relation(gold).rhs, take_last_relation(prediction).rhs
    return gold, prediction


def _elements(elements: Any) -> list[Any]:
    return list(elements._unsorted_args if isinstance(elements, Elements) else elements.args)


def _same_lists(golds: Any, predictions: Any) -> bool | None:
    if len(golds) != len(predictions):
        return None
    results = [same_values(*pair) for pair in zip(golds, predictions, strict=True)]
    return None if None in results else all(results)


def _same_sets(golds: list[Any], predictions: list[Any]) -> bool | None:
    """Whether each element of one set has its own equal element in the other."""
    left = list(predictions)
    for gold in golds:
        results = [same_values(gold, prediction) for prediction in left]
        if True in results:
            del left[results.index(True)]
        else:
            return None
    return True if not left else None


def _same_expressions(gold: Expr, prediction: Expr) -> bool | None:
    if gold.is_Symbol or prediction.is_Symbol or gold.has(*_OPERATORS) or prediction.has(*_OPERATORS):
        return None  # a symbol alone may be a word
    difference = Add(gold, Mul(-1, prediction, evaluate=False), evaluate=False)
    symbols = sorted(difference.free_symbols, key=lambda symbol: str(symbol.name))
    if not symbols and bits(difference) <= MOST_BITS and (exact := _fraction(difference)) is not None:
        return bool(exact == 0)
    readings = [_vanishes(difference, symbols)]
    if any(symbol.name == "i" for symbol in symbols):
        readings.append(_vanishes(difference, symbols, imaginary=True))
    if True in readings:
        return None if symbols and _is_branched(difference) else True
    return None if None in readings or difference.has(Float) else False  # decimals may be rounded


def _is_branched(expression: Expr) -> bool:
    """Whether an expression may change its form between two points: it rounds, compares, or has roots of variables."""
    roots = (part for part in expression.atoms(Pow) if part.exp.is_Rational and not part.exp.is_Integer)
    return expression.has(*_BRANCHED) or any(part.base.free_symbols for part in roots)


def _fraction(expression: Expr) -> Any:
    """The exact value of an expression of fractions, sums, products and whole powers; None for any other."""
    known: dict[Any, Any] = {}
    for part in postorder_traversal(expression):
        if part.is_Rational:
            known[part] = part
        elif part.is_Add:
            known[part] = sum((known[argument] for argument in part.args), S.Zero)
        elif part.is_Mul:
            known[part] = math.prod((known[argument] for argument in part.args), start=S.One)
        elif part.is_Pow and part.exp.is_Integer and known[part.base] != 0:
            known[part] = known[part.base] ** part.exp
        else:
            return None
    return known[expression]


def _vanishes(difference: Expr, symbols: list[Symbol], imaginary: bool = False) -> bool | None:
    """Whether an expression is zero at all points (True), at none (False), or neither (None)."""
    names = list(dict.fromkeys(symbol.name for symbol in symbols))
    zeros = set()
    for point in _POINTS if symbols else _POINTS[:1]:
        values = {name: point * Rational(31 + 12 * index, 31) for index, name in enumerate(names)}
        if imaginary:
            values["i"] = I
        zeros.add(_is_zero(difference, {symbol: values[symbol.name] for symbol in symbols}))
    return zeros.pop() if len(zeros) == 1 else None


def _is_zero(expression: Expr, values: dict[Symbol, Any]) -> bool | None:
    """Whether an expression is zero; None if it has no value, or one too close to zero to decide."""
    is_zero = _cancels(expression, values, _MOST_DIGITS)
    if is_zero and any(_is_extreme(part, values) for part in expression.atoms(Add)):
        return None if _cancels(expression, values, _DIGITS_OF_EXTREMES) else False
    return is_zero


def _cancels(expression: Expr, values: dict[Symbol, Any], digits: int) -> bool | None:
    """Whether the first `digits` digits of an expression all cancel; None if it has no value."""
    try:
        parts = expression.evalf(_DIGITS, subs=values, maxn=digits).as_real_imag()
    except Exception:  # sympy raises many kinds of error for expressions without a value
        return None
    if not all(part.is_Number and part.is_finite for part in parts):
        return None
    return all(part == 0 or part._prec == 1 for part in parts)  # one binary digit left: all others cancelled


def _is_extreme(total: Expr, values: dict[Symbol, Any]) -> bool:
    """Whether a term of a sum may be lost in 150 digits beside another term."""
    sizes = [abs(term.evalf(5, subs=values)) for term in total.args]
    known = [size for size in sizes if size.is_Number and size > 0]
    return bool(len(known) > 1 and min(known) * 10**_MOST_DECIMALS < max(known))
