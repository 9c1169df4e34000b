"""Reading what a model wrote as data, where the library would run it as Python.

Scorers of reasoning-gym hand answers to `eval`, and to SymPy's `parse_expr`, which is an `eval` too: an answer could
read files and start programs. `defuse` puts functions in their place that read the same lists, numbers and formulas and
can do nothing else. How long they take over them is not their concern: the process that scores has a budget.
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

#: Modules of the library whose scorers evaluate lists or sums, and those that read formulas under some name.
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

#: What a formula may be made of. Other names are refused if they mean anything to SymPy or to Python.
ELEMENTARY = frozenset(
    ["E", "I", "abs", "Abs", "acos", "acosh", "acot", "acoth", "acsc", "acsch", "asec", "asech", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceiling", "cos", "cosh", "cot", "coth", "csc", "csch", "erf", "erfc", "exp", "factorial", "floor", "ln", "log", "pi", "root", "sec", "sech", "sign", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"]
)
_TOLERATED = ELEMENTARY | frozenset(
    ["Add", "Derivative", "Float", "Integer", "Integral", "Max", "Min", "Mod", "Mul", "N", "O", "Pow", "Product", "Q", "Rational", "S", "Sum", "and", "apart", "binomial", "cancel", "collect", "diff", "else", "expand", "factor", "gamma", "gcd", "if", "integrate", "lcm", "nan", "not", "nsimplify", "oo", "or", "simplify", "together", "trigsimp", "zoo"]
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
    """Literals, lists of them, and sums of whole numbers. Raises what `eval` would raise, `ValueError` for the rest.

    evaluate("[[1, 0], [0, 1]]")
    evaluate("(0x1f << 2) - 3")   # 121
    """
    return _value(ast.parse(text.strip(), mode="eval").body)


def formula(text: str, local_dict: dict[str, Any] | None = None) -> Any:
    """`sympy.parse_expr` for text that holds numbers, operators and the names of functions, and nothing else."""
    end = 0
    known = local_dict or {}
    while end < len(text):
        token = _TOKEN.match(text, end)
        if token is None or not (token["name"] is None or token["name"] in known or _harmless(token["name"])):
            raise ValueError(f"not a formula at character {end}: {text[end : end + 20]!r}")
        end = token.end()
    return parse_expr(text, local_dict=local_dict)


def defuse() -> None:
    """Make the library's scorers in this process use `evaluate` and `formula`."""
    for name in EVALUATING:
        vars(import_module(f"reasoning_gym.{name}"))["eval"] = evaluate
    for name, attribute in READING_FORMULAS.items():
        module = import_module(f"reasoning_gym.{name}")
        vars(module)[attribute] = formula if attribute == "parse_expr" else _Algebra()


class _Algebra:
    """SymPy, with a `parse_expr` that does not run what it reads."""

    parse_expr = staticmethod(formula)

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)


@cache
def _dangerous() -> frozenset[str]:
    return frozenset(vars(sympy)) | frozenset(vars(builtins)) | frozenset(keyword.kwlist)


def _harmless(name: str) -> bool:
    return name in _TOLERATED or not ("__" in name or name in _dangerous())


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.List(elements) | ast.Tuple(elements) | ast.Set(elements):
            values = [_value(each) for each in elements]
            return tuple(values) if isinstance(node, ast.Tuple) else set(values) if isinstance(node, ast.Set) else values
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
