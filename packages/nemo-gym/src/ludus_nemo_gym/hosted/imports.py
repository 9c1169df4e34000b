"""What a server's code imports, calls and starts, read from its syntax: no code is run.

Only files that the entry file reaches by its imports are read. Scripts that lie beside it, such as those that prepare
data, say nothing about what the server needs.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ludus.errors import UserError, cannot_read

#: Imports of this package are never looked for in the checkout.
OURS = "nemo_gym"

_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass
class ServerCode:
    """What the reached files hold. Each mapping names the first place, such as `app.py:3`."""

    #: modules from elsewhere that the code cannot do without, with their dotted names
    imports: dict[str, str] = field(default_factory=dict)
    #: names of functions, classes and attributes that it uses
    names: dict[str, str] = field(default_factory=dict)
    #: short texts
    texts: dict[str, str] = field(default_factory=dict)
    #: programs that it starts or looks for
    programs: dict[str, str] = field(default_factory=dict)
    #: names of `nemo_gym` that it imports, with their modules in front
    our_names: dict[tuple[str, str], str] = field(default_factory=dict)
    #: environment variables without which the import of a file fails
    variables: dict[str, str] = field(default_factory=dict)

    def where(self, module: str) -> str:
        """Where the code imports a module or a part of it, or an empty text."""
        places = (place for name, place in self.imports.items() if name == module or name.startswith(f"{module}."))
        return next(places, "")


def read_code(entry: Path, search_path: list[Path]) -> ServerCode:
    """Read an entry file and all files of the search path that it imports.

    Raises a `UserError` that names the line if the syntax of one is wrong.
    """
    reader = _Reader(search_path)
    reader.read(entry)
    return reader.code


class _Reader:
    def __init__(self, search_path: list[Path]) -> None:
        self.code = ServerCode()
        self._search_path = search_path
        self._read: set[Path] = set()

    def read(self, entry: Path) -> None:
        """Read a file, then the files that it imports."""
        queue = [entry]
        while queue:
            path = queue.pop(0)
            if path in self._read:
                continue
            self._read.add(path)
            place = self._shown(path)
            tree = _parsed(path)
            for name, line in _variables(tree):
                self.code.variables.setdefault(name, f"{place}:{line}")
            for node in _needed_nodes(tree):
                where = f"{place}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    queue += self._imported(node, path, where)
                else:
                    self._note(node, where)

    def _imported(self, node: ast.Import | ast.ImportFrom, path: Path, where: str) -> Iterator[Path]:
        """The local files that a statement imports; modules from elsewhere are noted."""
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        else:
            for alias in node.names:
                self.code.names.setdefault(alias.name, where)
            wanted = [(node.module or "", alias.name) for alias in node.names]
        level = getattr(node, "level", 0) or 0
        for module, name in wanted:
            places = [path.parents[level - 1]] if 0 < level <= len(path.parents) else self._search_path
            files = [] if module.partition(".")[0] == OURS else self._local(places, module, name)
            yield from files
            if name and module.partition(".")[0] == OURS and not level:
                self.code.our_names.setdefault((module, name), where)
            if not files and not level:
                self.code.imports.setdefault(module, where)

    def _local(self, places: list[Path], module: str, name: str) -> list[Path]:
        """The files behind `import MODULE` or `from MODULE import NAME`, if the module is one of these places."""
        for place in places:
            if not any(place == root or place.is_relative_to(root) for root in self._search_path):
                continue
            folder = place
            files: list[Path] = []
            for part in [part for part in module.split(".") if part]:
                if (folder / f"{part}.py").is_file():
                    return [*files, folder / f"{part}.py"]
                folder = folder / part
                files += _first_file(folder)
            if name and (folder / f"{name}.py").is_file():
                files.append(folder / f"{name}.py")
            elif name:
                files += _first_file(folder / name)
            if files and folder.is_dir():
                return files
        return []

    def _note(self, node: ast.AST, where: str) -> None:
        if isinstance(node, ast.Name):
            self.code.names.setdefault(node.id, where)
        elif isinstance(node, ast.Attribute):
            self.code.names.setdefault(node.attr, where)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 40:
            self.code.texts.setdefault(node.value, where)
        elif isinstance(node, ast.List) and node.elts:
            self._program(node.elts[0], where)
        elif isinstance(node, ast.Call) and node.args:
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("which", "create_subprocess_exec"):
                self._program(node.args[0], where)

    def _program(self, node: ast.AST, where: str) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.code.programs.setdefault(node.value, where)

    def _shown(self, path: Path) -> str:
        """The path from the folder of the server, or from the checkout."""
        root = next((root for root in self._search_path if path.is_relative_to(root)), path.parent)
        return path.relative_to(root).as_posix()


def _first_file(folder: Path) -> list[Path]:
    file = folder / "__init__.py"
    return [file] if file.is_file() else []


def _needed_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes without imports that may fail (`except ImportError`) or that only type checkers read."""
    queue = [tree]
    while queue:
        node = queue.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            body = [child for child in node.body if not isinstance(child, (ast.Import, ast.ImportFrom))]
            children = [*body, *node.handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            children = list(node.orelse)
        queue.extend(reversed(children))


def _variables(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names in `os.environ["NAME"]` of plain statements at the top of a file, which run when it is imported."""
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                    name = node.slice.value if isinstance(node.slice, ast.Constant) else None
                    if isinstance(name, str) and ast.unparse(node.value) in ("os.environ", "environ"):
                        yield name, node.lineno


def _is_for_type_checkers(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    """Whether a handler lets the code go on without a module."""
    if any(isinstance(node, ast.Raise) for node in ast.walk(handler)):
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in _IMPORT_ERRORS for kind in kinds)


def _parsed(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those about backslashes
            return ast.parse(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from error
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: {error.msg}", "Correct the syntax") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} is not a Python file that can be parsed") from error
