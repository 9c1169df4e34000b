"""Runs the tests that may need a program of the system as on a machine that lacks it: none may fail, they are skipped.

python tests/bare.py ARGUMENTS OF PYTEST

PATH becomes a folder of links to every program but those of `HIDDEN`. The tests are those that mention one of them, or
an environment that needs one; and those that use a helper, a fixture or an import which does, but for slow ones.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HIDDEN = {"bwrap", "runc", "buildah", "chromium", "chromium-browser", "google-chrome", "node", "nodejs", "npm", "npx"}
PLACES = ("tests", "src/ludus/environments", "src/ludus/cookbook", "packages")

#: What a test says that may need a hidden program. `BUILT_IN` is the folder of all environments.
TELLING = r"sandbox|bubblewrap|playwright|harness|mini_swe|BUILT_IN|" + "|".join(
    rf"[\"'/]{name}[\"'\s]" for name in sorted(HIDDEN)
)


def test_files() -> list[str]:
    """The test files that mention what is hidden."""
    files = [path for place in PLACES for path in sorted((ROOT / place).rglob("test_*.py"))]
    return [str(path.relative_to(ROOT)) for path in files if mentions(path.read_text(encoding="utf-8"))]


def concerns(item: pytest.Item) -> bool:
    """Whether a test of these files belongs to the run: not if it is about an environment that needs nothing hidden. A
    test that mentions nothing hidden itself belongs to it if what it uses does and the test is not slow."""
    if not isinstance(item, pytest.Function):
        return True
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    about = {value for value in values if isinstance(value, str)} & _environments().keys()
    if about and not any(_environments()[name] for name in about):
        return False
    text = inspect.getsource(item.function)
    if mentions(text):
        return True
    if item.get_closest_marker("slow") is not None:
        return False
    return not _telling_names(item.path).isdisjoint([*re.findall(r"\w+", text), *item.fixturenames, "pytestmark"])


@functools.cache
def _telling_names(path: Path) -> set[str]:
    """The helpers, constants, fixtures and imports of a test file and of its conftest.py that mention what is hidden,
    or use such a one."""
    files = [path, *(folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT))]
    texts = {name: text for file in files if file.exists() for name, text in _named_texts(file)}
    telling = {name for name, text in texts.items() if mentions(text)}
    while more := {name for name, text in texts.items() if name not in telling and _uses(text, telling)}:
        telling |= more
    return telling


def _uses(text: str, names: set[str]) -> bool:
    return not names.isdisjoint(re.findall(r"\w+", text))


def _named_texts(path: Path) -> Iterator[tuple[str, str]]:
    """What a file defines at its top or in its classes, with its text, but for tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(inner for kind in classes for inner in kind.body)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0], f"{module}import {alias.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
                yield name.id, ast.unparse(node)
        elif not getattr(node, "name", "test_").startswith(("test_", "Test")):
            yield node.name, ast.unparse(node)  # type: ignore[attr-defined]


def mentions(text: str) -> bool:
    """Whether a test names a hidden program, an environment that runs code in a sandbox, or a helper that does."""
    return _telling().search(text) is not None


@functools.cache
def _telling() -> re.Pattern[str]:
    environments = [name for name, runs_programs in _environments().items() if runs_programs]
    helpers = [path for path in ROOT.glob("tests/**/*.py") if not path.name.startswith(("test_", "bare", "conftest"))]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in helpers}
    telling = re.compile("|".join([TELLING, *(rf"[\"'./]{name}\b" for name in environments)]))
    for _ in texts:  # a helper may import another
        names = [name for name, text in texts.items() if telling.search(text)]
        telling = re.compile("|".join([telling.pattern, *(rf"(?:import|from) {name}\b" for name in names)]))
        texts = {name: text for name, text in texts.items() if name not in names}
        if not names:
            break
    return telling


@functools.cache
def _environments() -> dict[str, bool]:
    """The built-in environments and recipes, and whether they run programs in a sandbox."""
    folders = [*ROOT.glob("src/ludus/environments/*/"), *ROOT.glob("src/ludus/cookbook/*/")]
    return {
        folder.name: any(
            "sandbox" in path.read_text(encoding="utf-8")
            for path in folder.glob("*.py")
            if not path.name.startswith("test_")
        )
        for folder in sorted(folders)
    }


def link_programs(folder: Path) -> None:
    """Link every program of PATH into a folder, less the hidden ones. The first of a name counts, as in PATH."""
    for entry in os.get_exec_path():
        if not os.path.isdir(entry):
            continue
        for program in os.scandir(entry):
            link = folder / program.name
            if program.name not in HIDDEN and not os.path.lexists(link):
                link.symlink_to(os.path.abspath(program.path))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        link_programs(Path(folder))
        command = [sys.executable, str(Path(__file__).with_name("suite.py")), *sys.argv[1:], *test_files()]
        environment = {**os.environ, "PATH": folder, "LUDUS_BARE": "1"}
        return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
