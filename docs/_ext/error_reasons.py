"""The reasons that errors quote: `cannot load {name}: {problem}` says one of them where `{problem}` stands.

There are three sources: other exceptions that are raised with a text, functions that make an error of a text that
they are given, and functions whose text becomes part of an error.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from error_sources import (
    SOURCE,
    Scope,
    error_classes,
    imported,
    module_of,
    parsed,
    source_files,
    statements,
    text,
    texts_of_names,
)

#: Whose texts no user reads: programs inside a sandbox, and tools and games, whose errors are for the model.
LEFT_OUT = ("environments/", "cookbook/", "sandbox/inside/", "graders/repository/inside.py", "graders/math_child.py")

#: Exceptions that say nothing: they end a loop, or are caught where they are raised.
_SILENT = {"StopIteration", "StopAsyncIteration", "KeyError", "NotImplementedError", "AssertionError", "SystemExit"}
_WORDS = re.compile(r"[A-Za-z]{2,}\W+[A-Za-z]{2,}")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Reason:
    """A text that an error quotes, and where it is written."""

    file: str
    line: int
    text: str


@cache
def source_reasons(source: Path = SOURCE) -> list[Reason]:
    """All reasons, ordered by file and line; a text that stands in several places is listed at each."""
    paths = [path for path in source_files(source) if not path.relative_to(source).as_posix().startswith(LEFT_OUT)]
    files = [_File.read(path, source) for path in paths]
    quoted = {origin for file in files for origin in _called_in_errors(file)}
    makers: dict[str, set[int]] = defaultdict(set)
    for origin, numbers in (maker for file in files for maker in _makers(file)):
        makers[origin] |= numbers
    found = set()
    for each in files:
        for node, scope in [*_raised(each), *_given(each, makers), *_returned(each, quoted)]:
            said = " ".join(text(node, scope).split())
            if _WORDS.search(re.sub(r"\{[^{}]*\}", "", said)):
                found.add(Reason(each.name, node.lineno, said))
    return sorted(found, key=lambda each: (each.file, each.line, each.text))


@dataclass
class _File:
    """A parsed file: its functions with what names stand for in each, and the names of error classes in it."""

    name: str
    module: str
    names: dict[str, str]
    known: set[str]
    functions: list[tuple[_Function, Scope]]
    calls: dict[_Function, list[ast.Call]]
    body: tuple[list[ast.stmt], Scope]

    @classmethod
    def read(cls, path: Path, source: Path) -> _File:
        tree, module = parsed(path), module_of(path, source)
        names, classes, scope = imported(tree, module), error_classes(), texts_of_names(tree.body)
        functions = [(node, texts_of_names(node.body, scope)) for node in ast.walk(tree) if isinstance(node, _Function)]
        known = {name for name, origin in names.items() if origin in classes}
        calls = {node: [each for each in ast.walk(node) if isinstance(each, ast.Call)] for node, _ in functions}
        return cls(path.relative_to(source).as_posix(), module, names, known, functions, calls, (tree.body, scope))

    def errors(self, function: _Function) -> list[ast.Call]:
        """The errors that a function makes."""
        return [each for each in self.calls[function] if isinstance(each.func, ast.Name) and each.func.id in self.known]

    def origin(self, call: ast.Call) -> str:
        """Where a called function is defined: a name comes from an import or from here, a method from here."""
        name = _called(call)
        return self.names.get(name, "") if isinstance(call.func, ast.Name) else f"{self.module}:{name}"


def _raised(file: _File) -> Iterator[tuple[ast.expr, Scope]]:
    """The texts of exceptions that are no errors of ours."""
    for body, scope in [file.body, *((function.body, scope) for function, scope in file.functions)]:
        for node in statements(body):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            name = ast.unparse(node.exc.func).split(".")[-1]
            if name not in file.known and name not in _SILENT:
                yield from ((each, scope) for each in node.exc.args)


def _makers(file: _File) -> Iterator[tuple[str, set[int]]]:
    """The functions that make an error of texts that they are given, and which of their arguments these are."""
    for function, _ in file.functions:
        names = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
        for call in file.errors(function):
            used = {each.id for part in call.args for each in ast.walk(part) if isinstance(each, ast.Name)}
            numbers = {number for number, name in enumerate(names) if name in used}
            yield f"{file.module}:{function.name}", numbers


def _given(file: _File, makers: dict[str, set[int]]) -> Iterator[tuple[ast.expr, Scope]]:
    """The texts that such functions are given."""
    for function, scope in file.functions:
        for call in file.calls[function]:
            for number in makers.get(file.origin(call), ()):
                yield from ((each, scope) for each in call.args[number : number + 1])


def _called_in_errors(file: _File) -> Iterator[str]:
    """The functions whose results become part of an error: called in it, or given a name that it uses."""
    for function, _ in file.functions:
        found = file.errors(function)
        values = defaultdict(list)
        for node in ast.walk(function) if found else ():
            if isinstance(node, ast.Assign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
                    values[name].append(node.value)
        for call in found:
            parts = [*call.args, *(each.value for each in call.keywords)]
            names = {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}
            parts += [value for name in names for value in values[name]]
            yield from (file.origin(each) for part in parts for each in ast.walk(part) if isinstance(each, ast.Call))


def _returned(file: _File, quoted: set[str]) -> Iterator[tuple[ast.expr, Scope]]:
    """What functions return whose results errors quote, and the tables of texts that they use."""
    tables = {
        target.id: node.value
        for node in file.body[0]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function, scope in file.functions:
        if f"{file.module}:{function.name}" in quoted:
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id in tables:
                    found = (each for each in ast.walk(tables[node.id]) if isinstance(each, ast.Constant))
                    yield from ((each, scope) for each in found if "(" not in str(each.value))
                if isinstance(node, ast.Return) and node.value is not None:
                    parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                    yield from ((each, scope) for part in parts for each in _texts(part))


def _texts(node: ast.expr) -> list[ast.expr]:
    """The texts in a returned value: itself, or those that a call in it is given."""
    return list(node.args) if isinstance(node, ast.Call) else [node]


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
