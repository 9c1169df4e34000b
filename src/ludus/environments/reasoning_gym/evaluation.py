"""Parsers that read a model's answer as data. The library would run it as Python.

Scorers of reasoning-gym pass answers to `eval`, and to SymPy's `parse_expr`, which also calls `eval`: an answer could
read files and start programs. `defuse` replaces both with functions that only parse lists, numbers and formulas. These
may take long on a hostile answer; the scoring process has a CPU time limit.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

import sympy
from sympy.parsing.sympy_parser import parse_expr

#: Modules of the library whose scorers call `eval`, and those that call `parse_expr`, with the name to replace.
EVALUATING = (
    "algorithmic.binary_matrix",
    "algorithmic.number_sorting",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "arithmetic.bitwise_arithmetic",
    "games.n_queens",
)
READING_FORMULAS = {
    "algebra.intermediate_integration": "sympy",
    "algebra.polynomial_multiplication": "sp",
    "algebra.simple_integration": "sympy",
    "games.countdown": "parse_expr",
    "games.puzzle24": "parse_expr",
}

#: Names that a formula may contain: functions and constants of an answer, and harmless ones. Any other name is refused
#: if SymPy or Python defines it.
_ELEMENTARY = re.compile(
    "E|I|pi|[aA]bs|a?(?:sin|cos|tan|cot|sec|csc)h?|atan2|ceiling|cbrt|erfc?|exp|factorial|floor|ln|log|root|sign|sinc|sqrt"
)
_HARMLESS = re.compile(
    "[NOQS]|Add|Derivative|Float|Integer|Integral|Max|Min|Mod|Mul|Pow|Product|Rational|Sum|and|apart|binomial|cancel|"
    "collect|diff|else|expand|factor|gamma|gcd|if|integrate|lcm|nan|not|nsimplify|oo|or|simplify|together|trigsimp|zoo"
)
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|[-+*/%^(),!]|\s+", re.ASCII)

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: Fraction(left) / right,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}


def evaluate(text: str) -> Any:
    """The value of literals, lists and arithmetic on numbers. Raises what `eval` would, or `ValueError` for other code.

    evaluate("[[1, 0], [0, 1]]")
    evaluate("(0x1f << 2) - 3")   # 121
    """
    return _value(ast.parse(text.strip(), mode="eval").body)


def formula(text: str, local_dict: dict[str, Any] | None = None) -> Any:
    """`sympy.parse_expr` for text that contains only numbers, operators and harmless names."""
    end = 0
    known = local_dict or {}
    while end < len(text):
        token = _TOKEN.match(text, end)
        if token is None or not (token["name"] is None or token["name"] in known or _harmless(token["name"])):
            raise ValueError(f"not a formula at character {end}: {text[end : end + 20]!r}")
        end = token.end()
    return parse_expr(text, local_dict=local_dict)


def elementary(name: str) -> bool:
    """Whether a name is a constant or an elementary function. Names such as `integrate` make SymPy compute."""
    return _ELEMENTARY.fullmatch(name) is not None


def defuse() -> None:
    """Make the library's scorers in this process use `evaluate` and `formula`."""
    for name in EVALUATING:
        vars(import_module(f"reasoning_gym.{name}"))["eval"] = evaluate
    for name, attribute in READING_FORMULAS.items():
        module = import_module(f"reasoning_gym.{name}")
        vars(module)[attribute] = formula if attribute == "parse_expr" else _Algebra()


class _Algebra:
    """SymPy, with a `parse_expr` that does not run its input as code."""

    parse_expr = staticmethod(formula)

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)


@cache
def _dangerous() -> frozenset[str]:
    return frozenset(vars(sympy)) | frozenset(vars(builtins)) | frozenset(keyword.kwlist)


def _harmless(name: str) -> bool:
    return elementary(name) or bool(_HARMLESS.fullmatch(name)) or not ("__" in name or name in _dangerous())


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Tuple(elements):
            return tuple(_value(element) for element in elements)
        case ast.List(elements):
            return [_value(element) for element in elements]
        case ast.Set(elements):
            return {_value(element) for element in elements}
        case ast.Dict(keys, values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op, operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(operand))
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            return _BINARY[type(op)](_number(left), _number(right))
    raise ValueError(f"not data: {type(node).__name__}")


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if not isinstance(value, (int, float, Fraction)):
        raise ValueError(f"not a number: {value!r:.40}")
    return value
