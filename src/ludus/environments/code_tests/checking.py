"""Why no program could be judged by the tests of a row, found by reading them. Nothing is run."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ludus.sandbox.packages import places


@lru_cache(maxsize=64)
def row_problem(
    entry_point: str, test: str, asserts: tuple[str, ...], context: str, solution: str | None, packages: tuple[str, ...]
) -> str | None:
    """The first problem in one sentence, or None. `packages` are those that programs and tests may import."""
    tests = "\n".join([test, *asserts])
    if not tests.strip():
        return "there is no test: set test or test_list"
    if not entry_point:
        return "entry_point is missing, and the tests do not show which function they call: set entry_point"
    if not entry_point.isidentifier():
        return f"entry_point {entry_point!r:.40} is no name of a function"
    trees: dict[str, ast.Module] = {}
    for name, source in {"test": tests, "context": context, "solution": solution or ""}.items():
        try:
            trees[name] = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{name} is no Python: {error!s:.100}"
    if not _uses(trees["test"], entry_point):
        return f"the tests never use {entry_point}"
    if solution is not None and not _defines(trees["solution"], entry_point):
        return f"the solution does not define {entry_point}"
    if solution is None and (compared := _compared_by_identity(trees["test"])) is not None:
        cause = f"the tests ask whether a value `is` {compared}, which another process cannot answer"
        return f"{cause}: use ==, or add a solution"
    return _missing_module(trees, packages)


def _compared_by_identity(tree: ast.Module) -> str | None:
    """What tests compare with `is`, if it is neither a constant nor a built-in type. A solution would show the same."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(part, (ast.Is, ast.IsNot)) for part in node.ops):
            sides = [node.left, *node.comparators]
            if not any(isinstance(part, ast.Constant) or _is_type(part) for part in sides):
                return ast.unparse(node.comparators[-1])[:40]
    return None


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and isinstance(getattr(builtins, node.id, None), type)


def _uses(tree: ast.Module, name: str) -> bool:
    """Whether tests use the function by its name, or as the argument of their function `check`."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    checks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    return bool(({check.args.args[0].arg for check in checks if check.args.args} | {name}) & used)


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether a program has a top-level name: by `def`, `class`, an import or an assignment, also under `if`."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                return True
            case ast.Name(ctx=ast.Store()) if node.id == name:
                return True
            case ast.alias() if (node.asname or node.name) in (name, "*"):
                return True
    return False


def _missing_module(trees: Mapping[str, ast.Module], packages: tuple[str, ...]) -> str | None:
    there = {*sys.stdlib_module_names, *(path.name.partition(".")[0] for path in places(packages))}
    for where in ("test", "context"):
        for module in _imported(trees[where]):
            if module not in there:
                packed = ", ".join(packages) or "no package"
                return f"{where} imports {module}, which is not in the sandbox: the standard library and {packed} are"
    return None


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top names of modules that code needs as soon as it runs."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
