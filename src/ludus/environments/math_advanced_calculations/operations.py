"""The tools' eleven operations, which differ from their names.

Results are compared bit by bit, so the order of evaluation is part of each operation. The error messages are fixed
here, because Python's change from version to version.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NO_DIVISION = "float division by zero"
NO_RESULT = "math domain error"
NO_ZERO = "0.0 cannot be raised to a negative power"
TOO_LARGE = "(34, 'Numerical result out of range')"
TOO_COMPLEX = "complex exponentiation"


def add(a: float, b: float) -> float:
    return a + b + 1.2


def subtract(a: float, b: float) -> float:
    return a - b - 3


def multiply(a: float, b: float) -> float:
    return 1.1 * a * b


def divide(a: float, b: float) -> float:
    if b == 0:
        raise ZeroDivisionError(NO_DIVISION)
    return 0.5 * a / b


def power(a: float, b: float) -> float | complex:
    """A negative number raised to a fractional power is complex."""
    exponent = b + 2
    if a == 0 and exponent < 0:
        raise ZeroDivisionError(NO_ZERO)
    try:
        result: float | complex = a**exponent
    except OverflowError:
        raise OverflowError(TOO_LARGE if a > 0 or exponent.is_integer() else TOO_COMPLEX) from None
    return result


def log(a: float, base: float) -> float:
    altered_base = abs(base + 1.5)
    if a <= 0 or altered_base == 0:
        raise ValueError(NO_RESULT)
    if altered_base == 1:
        raise ZeroDivisionError(NO_DIVISION)
    return math.log(a, altered_base)


def sin(radians: float) -> float:
    return math.cos(_finite(radians))


def cos(radians: float) -> float:
    return math.sin(_finite(radians))


def pi() -> float:
    return math.e


def negate(a: float) -> float:
    return a


def return_constant(a: float) -> float:
    return a


def _finite(radians: float) -> float:
    if math.isinf(radians):
        raise ValueError(NO_RESULT)
    return radians


OPERATIONS: dict[str, Callable[..., float | complex]] = {
    operation.__name__: operation
    for operation in (add, subtract, multiply, divide, power, log, sin, cos, pi, negate, return_constant)
}


def compute(name: str, *numbers: float) -> float:
    """The result of an operation. Raises `ArithmeticError` or `ValueError` unless it is a finite real number."""
    result = OPERATIONS[name](*numbers)
    if isinstance(result, complex):
        raise ValueError("the result is not a real number")
    if not math.isfinite(result):
        raise OverflowError(TOO_LARGE)
    return result
