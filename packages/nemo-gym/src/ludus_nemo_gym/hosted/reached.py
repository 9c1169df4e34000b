"""The code of a checkout that a server reaches by its imports, outside of its folder: it can change a reward, too."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from ludus.errors import cannot_read
from ludus_nemo_gym.names import KINDS

ENTRY = "app.py"

#: A name such as `resources_servers.mcqa.app` in a text is imported, too: by `importlib`.
_NAMED = re.compile(rf"(?:{'|'.join(KINDS)})(?:\.\w+)+")
#: Files whose names say that they are not a server's code. If the code imports them, they are.
_UNLIKELY = re.compile(r"(^|/)(test_[^/]*|tests|conftest\.py|qualify\.py)(/|$)")


def reached_code(folder: Path, root: Path) -> tuple[Path, ...]:
    """The folders of other servers and the files of a checkout that a server imports, and those that they import."""
    found: dict[Path, None] = {}
    queue = list(python_files(folder))
    while queue:
        path = queue.pop()
        for name in _modules(path, root):
            for place in _places(name, folder, root):
                inside = place.is_relative_to(folder) and not _UNLIKELY.search(place.relative_to(folder).as_posix())
                if place not in found and not inside:
                    found[place] = None
                    queue += python_files(place) if place.is_dir() else [place]
    return tuple(sorted(place for place in found if not any(parent in found for parent in place.parents)))


def python_files(folder: Path) -> Iterator[Path]:
    """The Python files of a folder, without its tests; a file is itself."""
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*.py")):
        if not {"tests", "__pycache__", ".venv"} & set(path.relative_to(folder).parts):
            yield path


def parsed(path: Path) -> ast.AST:
    """The syntax of a file; empty if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those about backslashes
            return ast.parse(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from error
    except (SyntaxError, ValueError, RecursionError):  # the import says where
        return ast.Module([], [])


def _modules(path: Path, root: Path) -> Iterator[str]:
    """The dotted names that a file imports, at the top or in functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = list(path.relative_to(root).parts[: -node.level]) if node.level else []
            names = [*package, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*names, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.fullmatch(node.value):
            yield node.value


def _places(name: str, folder: Path, root: Path) -> Iterator[Path]:
    """The server's folder, or the files, that a dotted name stands for."""
    first, *parts = name.split(".")
    if first in KINDS:
        place = root / first
        for part in parts:
            place = place / part
            if (place / ENTRY).is_file():
                yield place
                return
        if parts and (root / first / parts[0]).is_dir():
            yield root / first / parts[0]
    elif first != "nemo_gym":
        is_own = (folder / first).is_dir() or (folder / f"{first}.py").is_file()
        yield from _files(folder if is_own else root, [first, *parts])


def _files(place: Path, parts: list[str]) -> Iterator[Path]:
    for part in parts:
        if (place / f"{part}.py").is_file():
            yield place / f"{part}.py"
            return
        place = place / part
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
