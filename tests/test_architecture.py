"""Imports point one way: cli -> collection -> agents, models, verifiers -> the words."""

from __future__ import annotations

import ast
from pathlib import Path

import ludus

ROOT = Path(ludus.__file__).parent
#: Each room may import from rooms of its own line and of the lines below it.
ROOMS = """
    cli testing
    environments
    rescore compare qualify serve collection
    agents models graders integrations remote http dialects
    store
    words
    runtime
    errors
"""
LAYERS = {room: -depth for depth, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}


def layer(parts: tuple[str, ...]) -> int:
    return LAYERS.get(parts[0].removesuffix(".py"), LAYERS["words"])


def imports(path: Path) -> set[tuple[int, str]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ludus":
            found.add((node.lineno, node.module))
    return found


def test_nothing_imports_from_a_layer_above_its_own():
    wrong = []
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts
        if here[0] in ("__init__.py", "__main__.py") or path.name.startswith("test_"):
            continue
        for line, module in imports(path):
            there = tuple(module.split(".")[1:])
            if there and layer(there) > layer(here):
                wrong.append(f"{'/'.join(here)}:{line} imports {module}")
    assert not wrong


def test_environments_do_not_import_each_other():
    for path in (ROOT / "environments").rglob("*.py"):
        own = path.relative_to(ROOT / "environments").parts[0]
        for line, module in imports(path):
            other = module.removeprefix("ludus.environments.")
            assert other == module or other.split(".")[0] == own, f"{path}:{line} imports {module}"


def test_every_public_name_has_a_docstring():
    for name in ludus.__all__:
        assert getattr(ludus, name).__doc__, name
