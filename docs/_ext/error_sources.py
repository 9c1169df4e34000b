"""Every error that the code can raise, read from the source: its message with placeholders, its remedy, its place.

A call of an error's class counts, also without `raise`: many errors are made by one function and raised by another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ludus"

#: The classes at the roots, and functions that make an error; subclasses are found in the source.
ROOTS = {
    "ludus.errors:UserError": "UserError",
    "ludus.errors:Failure": "Failure",
    "ludus.http.messages:Refusal": "Refusal",
    "ludus.errors:missing_extra": "UserError",
    "ludus.errors:missing_package": "UserError",
    "ludus.errors:cannot_read": "UserError",
    "ludus.errors:not_installed": "UserError",
    "ludus:UserError": "UserError",  # names that `ludus` imports at their first use
    "ludus:Failure": "Failure",
}
_TOO_LONG = 60
_CLASS = re.compile(r"^ *class (\w+)\(([^)]*)\)", re.MULTILINE)


@dataclass(frozen=True)
class SourceError:
    """One error. `kind` is that of a failure; `{...}` in `message` stands for a value; `hint` may be empty."""

    file: str
    line: int
    type: str
    message: str
    hint: str
    kind: str = ""

    @property
    def passed_on(self) -> bool:
        """Whether the whole message is that of another error or of a server."""
        return re.fullmatch(r"(\{[^{}]*\}[:. ]*)*", self.message) is not None

    @property
    def room(self) -> str:
        """The folder of its file; `words` for the files at the top."""
        parts = self.file.split("/")
        return parts[0] if len(parts) > 1 else "words"


@dataclass
class Scope:
    """What names stand for in the running function and in its module."""

    values: dict[str, list[ast.expr]] = field(default_factory=dict)

    def added(self, body: list[ast.stmt]) -> Scope:
        """This scope and the assignments of a body, nested blocks included, functions inside it not."""
        values = {name: list(found) for name, found in self.values.items()}
        own: dict[str, list[ast.expr]] = {}
        for node in statements(body):
            for name, value in _assigned(node):
                own.setdefault(name, []).append(value)
        return Scope({**values, **own})


@cache
def source_errors(source: Path = SOURCE) -> list[SourceError]:
    """All errors of the source, ordered by file and line. Tests are left out."""
    found: list[SourceError] = []
    classes = error_classes(source)
    for path, tree in _trees(source).items():
        file = path.relative_to(source).as_posix()
        known = imported(tree, module_of(path, source))
        kinds = {name: classes[origin] for name, origin in known.items() if origin in classes}
        found += _errors(tree.body, Scope().added(tree.body), file, kinds)
    return sorted(found, key=lambda each: (each.file, each.line))


@cache
def _trees(source: Path) -> dict[Path, ast.Module]:
    """The files that mention an error's class, parsed. A class counts by its name alone here: too many are no harm."""
    texts = {path: path.read_text() for path in source_files(source)}
    bases = [
        (found[1], set(re.findall(r"\w+", found[2]))) for text in texts.values() for found in _CLASS.finditer(text)
    ]
    names = {root.partition(":")[2] for root in ROOTS}
    while more := {name for name, given in bases if given & names} - names:
        names |= more
    mentions = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    return {path: parsed(path) for path, text in texts.items() if mentions.search(text)}


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file. Several pages read the same files."""
    return ast.parse(path.read_text())


def source_files(source: Path = SOURCE) -> list[Path]:
    """The Python files of the source that are no tests, templates or front end."""
    skipped = {"web", "node_modules", "static", "template"}
    return [
        path
        for path in sorted(source.rglob("*.py"))
        if not path.name.startswith("test_") and not skipped & set(path.relative_to(source).parts)
    ]


@cache
def error_classes(source: Path = SOURCE) -> dict[str, str]:
    """The root of every class of errors, by `module:Class`."""
    trees = {module_of(path, source): tree for path, tree in _trees(source).items()}
    bases: dict[str, list[str]] = {}
    for module, tree in trees.items():
        known = imported(tree, module)
        for node in statements(tree.body, inside=True):
            if isinstance(node, ast.ClassDef):
                bases[f"{module}:{node.name}"] = [known.get(ast.unparse(base), "") for base in node.bases]
        if module.count(".") < 2:  # a package that passes names of its own files on
            bases |= {f"{module}:{name}": [origin] for name, origin in known.items() if origin != f"{module}:{name}"}
    found = dict(ROOTS)
    while True:
        more = {
            name: found[base] for name, given in bases.items() for base in given if base in found and name not in found
        }
        if not more:
            return found
        found |= more


def module_of(path: Path, source: Path) -> str:
    """The name of a file's module."""
    return ".".join(["ludus", *path.relative_to(source).with_suffix("").parts]).removesuffix(".__init__")


def imported(tree: ast.Module, module: str) -> dict[str, str]:
    """Where the names of a module come from, as `module:name`: imports anywhere in it, and its own definitions."""
    known: dict[str, str] = {}
    for node in statements(tree.body, inside=True):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {each.asname or each.name: f"{node.module}:{each.name}" for each in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            known[node.name] = f"{module}:{node.name}"
    return known


def _errors(body: list[ast.stmt], scope: Scope, file: str, kinds: dict[str, str]) -> Iterator[SourceError]:
    for statement in body:
        if not kinds:
            return
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _errors(statement.body, scope.added(statement.body), file, kinds)
        elif isinstance(statement, ast.ClassDef):
            yield from _errors(statement.body, scope, file, kinds)
        else:
            inner = [block for block in _blocks(statement) if block]
            for node in _expressions(statement):
                if isinstance(node, ast.Call):
                    made = _error(node, scope, file, kinds)
                    if made is not None:
                        yield made
            for block in inner:
                yield from _errors(block, scope, file, kinds)


def _error(call: ast.Call, scope: Scope, file: str, kinds: dict[str, str]) -> SourceError | None:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name not in kinds:
        return None
    given = [text(each, scope) for each in call.args]
    named = {each.arg: text(each.value, scope) for each in call.keywords if each.arg}
    given = [" ".join(each.split()) for each in given]
    message, hint, kind = _parts(name, kinds[name], given, named)
    return SourceError(file, call.lineno, name, message, hint, kind)


def _parts(name: str, root: str, given: list[str], named: dict[str, str]) -> tuple[str, str, str]:
    """Message, hint and kind of an error, from the arguments of its class."""
    first, second = [*given, "", ""][:2]
    if name == "missing_extra":
        return f"{first} is not installed", f"Install it with: pip install 'ludus-gym[{second}]'", ""
    if name == "missing_package":
        return f"{first} is in another package", f"Install it with: pip install ludus-{second}", ""
    if name == "not_installed":
        return f"{second + ': ' if second else ''}{first} is not installed", "Install it, or correct its name", ""
    if name == "cannot_read":
        return f"cannot read {first}: {{reason}}", "Check the path, and that you may read there", ""
    if name == "Failure":
        return second or named.get("cause", ""), "", first or named.get("kind", "")
    if root == "Failure":
        return first, "", "disconnected" if name == "Disconnected" else "sandbox"
    if root == "Refusal":
        return f"HTTP {first}: {second}", "", named.get("kind", "")
    if name in ("DuplicateKey", "LongInteger", "BadRow"):
        return f"{{where}}: {{{'problem' if name == 'BadRow' else second.strip('{}') or 'value'}}}", "{hint}", ""
    if name == "BadField":
        return second, "", ""
    return first or named.get("message", ""), second or named.get("hint", ""), ""


def texts_of_names(body: list[ast.stmt], around: Scope | None = None) -> Scope:
    """What names stand for in a body, in the scope around it."""
    return (around or Scope()).added(body)


def text(node: ast.expr, scope: Scope, depth: int = 0) -> str:
    """What an expression says, with `{name}` for what is known only when it runs."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(each, scope, depth) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left, scope, depth) + text(node.right, scope, depth)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, [text(node.body, scope, depth), text(node.orelse, scope, depth)]))
    if isinstance(node, ast.BoolOp):
        return " / ".join(filter(None, (text(each, scope, depth) for each in node.values)))
    if isinstance(node, ast.Name) and depth < 3 and node.id in scope.values:
        found = [text(each, scope, depth + 1) for each in scope.values[node.id]]
        return " / ".join(dict.fromkeys(each for each in found if each)) or f"{{{node.id}}}"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "did_you_mean":
        return "Did you mean {similar}? / Known: {all}."
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "install_command" and node.args:
        return f"pip install 'ludus-gym[{text(node.args[0], scope, depth)}]'"
    return _placeholder(node)


def _piece(node: ast.expr, scope: Scope, depth: int) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    inner = node.value
    if isinstance(inner, ast.IfExp):
        choices = [text(each, scope, depth + 1) for each in (inner.body, inner.orelse)]
        return f"({'|'.join(choices)})" if all(choices) else f"({''.join(choices)})?"
    if isinstance(inner, ast.Name) and depth < 3 and _is_constant(scope.values.get(inner.id, [])):
        return text(inner, scope, depth + 1)
    if isinstance(inner, ast.Call) and ast.unparse(inner.func) in ("did_you_mean", "install_command"):
        return text(inner, scope, depth)
    return _placeholder(inner)


def _is_constant(values: list[ast.expr]) -> bool:
    return len(values) == 1 and isinstance(values[0], ast.Constant) and len(str(values[0].value)) <= _TOO_LONG


def _placeholder(node: ast.expr) -> str:
    """A short name for a value: the last word of the expression that gives it."""
    if isinstance(node, ast.Call):
        words = node.args or [node.func]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "join":
            return _placeholder(node.args[0])
        return _placeholder(words[0])
    if isinstance(node, ast.Attribute):
        return f"{{{node.attr.strip('_')}}}"
    if isinstance(node, ast.Subscript):
        key = node.slice
        return (
            f"{{{key.value}}}"
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
            else _placeholder(node.value)
        )
    if isinstance(node, ast.Name):
        return f"{{{node.id.strip('_').lower()}}}"
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    return _placeholder(names[0]) if names else "{value}"


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives texts to."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name) and _says_something(node.value):
            yield target.id, node.value
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for each, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(each, ast.Name) and _says_something(value):
                    yield each.id, value


def _says_something(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    return (
        isinstance(value, ast.JoinedStr | ast.IfExp | ast.BoolOp)
        or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and "'" in ast.unparse(value))
        or (isinstance(value, ast.Call) and ast.unparse(value.func) == "did_you_mean")
    )


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a statement, such as those of `if` and `try`."""
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    handlers = [handler.body for handler in getattr(statement, "handlers", [])]
    cases = [case.body for case in getattr(statement, "cases", [])]
    return [*blocks, *handlers, *cases]


def statements(body: list[ast.stmt], inside: bool = False) -> Iterator[ast.stmt]:
    """All statements of a body, nested blocks included; `inside`: also those of functions and classes."""
    for statement in body:
        yield statement
        if inside or not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in _blocks(statement):
                yield from statements(block, inside)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement itself, and not of its blocks."""
    inner = {id(each) for block in _blocks(statement) for each in block}
    waiting: list[ast.AST] = [each for each in ast.iter_child_nodes(statement) if id(each) not in inner]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def as_pattern(message: str) -> re.Pattern[str]:
    """A pattern that matches the messages that a message with placeholders stands for."""
    choices = []
    for choice in message.split(" / "):
        pieces = re.split(r"(\{[^{}]*\}|\([^()]*\|[^()]*\)|\([^()]*\)\?)", choice)
        choices.append("".join(re.escape(each) if number % 2 == 0 else ".*" for number, each in enumerate(pieces)))
    return re.compile("|".join(choices), re.DOTALL)
