"""Expected values that never enter a sandbox: taken out of the tests, and compared outside.

A test runs in one process with the code that it tests, so hostile code could read `assert total(cart) == 41` from a
file or a frame, return 41, or return an object that equals everything. Therefore the test is rewritten to
`check(7, total(cart))`, which reports the value, and the comparison with 41 happens here, on plain data.

Taken out are literals that an assertion compares with (`==`, `!=`, `<`, `in`, `is` and the others, also
`pytest.approx`), and the exceptions of `pytest.raises`. Other assertions are decided inside, and report that they held.

An assertion that a right program may skip (in a branch, in a loop, after a `return` of the test itself) need not be
reached. All others must be, in a loop over literals once for each. So code that makes a test end early, or that takes
away its reports, fails it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludus.graders.repository.reported import ReportedDict

_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda left, right: type(left) is type(right) and left == right,
    ast.IsNot: lambda left, right: type(left) is not type(right) or left != right,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


@dataclass(frozen=True)
class Expectation:
    """One assertion of a test whose expected value stays outside: `holds` says whether a reported value fits."""

    test: str  #: `tests/test_cart.py::TestCart::test_total`
    holds: Callable[[Any], bool]
    least: int = 1  #: how often every right program reaches it; 0 if it may skip it


class HiddenTests:
    """Tests without their expected values, and the expectations that were in them.

    hidden = HiddenTests({"tests/test_cart.py": source}, names=("_m1", "_check2", "_raises3"))
    hidden.sources["tests/test_cart.py"]     # what may enter the sandbox
    hidden.missed("tests/test_cart.py::test_total", {0: [41]})    # why a test did not pass, or None
    """

    def __init__(self, sources: Mapping[str, str], names: tuple[str, str, str]) -> None:
        self.expectations: list[Expectation] = []
        self.sources = {path: self._rewritten(path, text, names) for path, text in sources.items()}

    def missed(self, test: str, reported: Mapping[int, list[Any]]) -> str | None:
        """Which expectation of a test the reported values do not meet; None if they meet all."""
        own = test.partition("[")[0]
        mine = [number for number, expectation in enumerate(self.expectations) if expectation.test == own]
        if any(len(reported.get(number, ())) < self.expectations[number].least for number in mine):
            return "an assertion was not reached"
        for number, values in reported.items():
            if not 0 <= number < len(self.expectations):
                return "an assertion that does not exist was reported"
            if not all(_is_met(self.expectations[number], value) for value in values):
                return "an assertion does not hold"
        return None

    def _rewritten(self, path: str, text: str, names: tuple[str, str, str]) -> str:
        module, check, raises = names
        tree = _Rewriter(path, check, raises, self.expectations).visit(ast.parse(text))
        line = ast.ImportFrom(module, [ast.alias("check", check), ast.alias("raises", raises)], 0)
        tree.body.insert(_first_statement(tree), line)
        return ast.unparse(ast.fix_missing_locations(tree))


def _first_statement(tree: ast.Module) -> int:
    """After the docstring and the imports from `__future__`."""
    at = 0
    for at, node in enumerate(tree.body):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not future and not text:
            return at
    return at


def _is_met(expectation: Expectation, value: Any) -> bool:
    """Whether a reported value fits. A comparison that raises, such as one of two types, does not fit."""
    try:
        return bool(expectation.holds(value))
    except Exception:
        return False


class _Rewriter(ast.NodeTransformer):
    """Replaces assertions in test functions, and keeps their expected values."""

    def __init__(self, path: str, check: str, raises: str, expectations: list[Expectation]) -> None:
        self._names = [path]
        self._check, self._raises = check, raises
        self._expectations = expectations
        self._least = 1
        self._first_return = math.inf

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        if self._test is None:
            return node
        match node.test:
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                pass
            case _:
                return self._reported(node)
        compare = _OPERATORS[type(sign)]
        if (expected := _expected(right)) is not None:
            return self._checked(node, left, partial(expected.compared, compare))
        if (expected := _expected(left)) is not None:
            contains = isinstance(sign, (ast.In, ast.NotIn))
            return self._checked(node, right, partial(expected.compared, _swapped(compare)), contains)
        return self._reported(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._times(node, _rounds(node))

    def visit_With(self, node: ast.With) -> ast.AST:
        swallows = any(_may_swallow(item.context_expr) for item in node.items)
        for item in node.items:
            match item.context_expr:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="pytest"), attr="raises"), args=[kinds], keywords=[]
                ) if self._test is not None:
                    names = _class_names(kinds)
                    if names:
                        number = self._keep(node, partial(_raised, names))
                        item.context_expr = _call(self._raises, ast.Constant(number))
        return self._sometimes(node) if swallows else self.generic_visit(node)

    def _sometimes(self, node: Any) -> ast.AST:
        """Visit code that a right program may skip."""
        return self._times(node, 0)

    def _times(self, node: Any, rounds: int) -> ast.AST:
        """Visit code that a right program runs this often."""
        before, self._least = self._least, self._least * rounds
        self.generic_visit(node)
        self._least = before
        return node  # type: ignore[no-any-return]

    def _inside(self, node: Any) -> ast.AST:
        before = self._least, self._first_return
        self._least = 1
        returns = (inner.lineno for inner in _own_nodes(node) if isinstance(inner, ast.Return))
        self._first_return = min(returns, default=math.inf)
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        self._least, self._first_return = before
        return node  # type: ignore[no-any-return]

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _inside
    visit_If = visit_AsyncFor = visit_While = visit_Try = visit_TryStar = visit_Match = visit_AsyncWith = _sometimes

    @property
    def _test(self) -> str | None:
        """The test that is being rewritten. Assertions of helpers stay as they are."""
        return "::".join(self._names) if self._names[-1].startswith("test") and len(self._names) > 1 else None

    def _checked(
        self, node: ast.Assert, value: ast.expr, holds: Callable[[Any], bool], contains: bool = False
    ) -> ast.AST:
        arguments = [ast.Constant(self._keep(node, holds)), value, *([ast.Constant(True)] if contains else [])]
        return ast.copy_location(ast.Expr(_call(self._check, *arguments)), node)

    def _reported(self, node: ast.Assert) -> list[ast.stmt]:
        """An assertion that is decided inside, and the report that it held."""
        held = ast.Expr(_call(self._check, ast.Constant(self._keep(node, bool)), ast.Constant(True)))
        return [node, ast.copy_location(held, node)]

    def _keep(self, node: ast.stmt, holds: Callable[[Any], bool]) -> int:
        least = self._least if node.lineno < self._first_return else 0
        self._expectations.append(Expectation(self._test or "", holds, least))
        return len(self._expectations) - 1


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def _own_nodes(node: ast.AST, without: tuple[type[ast.AST], ...] = _SCOPES) -> Iterator[ast.AST]:
    """The nodes inside of a node, but not those of functions, or of whatever `without` names, that it holds."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, without):
            yield from _own_nodes(child, without)


def _rounds(node: ast.For) -> int:
    """How often a loop over literals runs its body; 0 if that is not known, or if something leaves it early."""
    if any(isinstance(inner, (ast.Break, ast.Continue)) for inner in _own_nodes(node, (*_SCOPES, *_LOOPS))):
        return 0
    match node.iter:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if not any(isinstance(part, ast.Starred) for part in parts):
            return len(parts)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))]):
            return max(count, 0)
    return 0


def _may_swallow(node: ast.expr) -> bool:
    """Whether a context manager ends its block at an exception and goes on, by its name."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return "raises" in name.lower() or "suppress" in name.lower()
    return False


class _Expected:
    """An expected value, and how far a number may be from it."""

    def __init__(self, value: Any, tolerance: dict[str, float] | None = None) -> None:
        self.value = value
        self.tolerance = tolerance

    def compared(self, compare: Callable[[Any, Any], Any], value: Any) -> bool:
        if self.tolerance is None:
            return bool(compare(value, self.value))
        close = _close(value, self.value, **self.tolerance)
        return close if compare is operator.eq else not close and compare is operator.ne


def _raised(names: set[str], classes: Any) -> bool:
    """Whether one of the classes of an exception has a name that was expected."""
    return bool(names.intersection(classes))


def _swapped(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return compare if compare in (operator.eq, operator.ne) else lambda left, right: compare(right, left)


def _expected(node: ast.expr) -> _Expected | None:
    """The value of a literal, or of `approx` with literals; None for any other expression."""
    try:
        return _Expected(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    match node:
        case ast.Call(func=ast.Attribute(attr="approx") | ast.Name(id="approx"), args=[inner], keywords=keywords):
            try:
                tolerance = {str(word.arg): float(ast.literal_eval(word.value)) for word in keywords}
                return _Expected(ast.literal_eval(inner), tolerance) if {*tolerance} <= {"rel", "abs"} else None
            except (ValueError, TypeError, SyntaxError):
                return None
    return None


def _close(value: Any, expected: Any, rel: float | None = None, abs: float | None = None) -> bool:
    """`pytest.approx` for numbers, and for lists, tuples and mappings of them."""
    if isinstance(expected, (list, tuple)):
        same = isinstance(value, (list, tuple)) and len(value) == len(expected)
        return same and all(_close(*pair, rel, abs) for pair in zip(value, expected, strict=True))
    if isinstance(expected, dict):
        if isinstance(value, ReportedDict):
            value = value.by_keys_of(expected)
        same = isinstance(value, dict) and value.keys() == expected.keys()
        return same and all(_close(value[key], expected[key], rel, abs) for key in expected)
    if not isinstance(value, (int, float)) or not isinstance(expected, (int, float)):
        return bool(value == expected)
    relative = (1e-6 if abs is None else 0.0) if rel is None else rel
    return math.isclose(value, expected, rel_tol=0.0, abs_tol=max(relative * math.fabs(expected), abs or 1e-12))


def _class_names(node: ast.expr) -> set[str]:
    """The names of the exceptions in `raises(...)`, or nothing if they are not written as names."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.Tuple(elts=parts):
            names = [_class_names(part) for part in parts]
            return set().union(*names) if all(names) else set()
    return set()


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
