"""The shape of the code: rooms are layers, imports never run in a circle, and no two classes share a name."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

import ludus

ROOT = Path(ludus.__file__).parent
PACKAGES = Path(__file__).parents[1] / "packages"

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")

#: The drawing of docs/architecture.md, one layer a line. A room knows the rooms of the lines below its own.
DRAWING = [
    [room.strip().removeprefix("the ") for room in line.split(",")]
    for line in re.findall(r"^ {4}(\S.*)$", PAGE.partition("## The rooms")[2].partition("\n\n|")[0], re.MULTILINE)
]
HEIGHTS = {room: -depth for depth, line in enumerate(DRAWING) for room in line}

#: The words: one file each at the top, which say what the architecture is.
WORDS = """
    adapter agent dataset environment episode folder game limits model outcome prompt record recorder resources
    response rollout task thread token_fields tokens tools
""".split()

#: Rooms that are one file beside the words.
FILES = {"api", "errors", "testing"}

#: A text that names a module, as in `python -m ludus.serve.worker` or `ludus.agents.simple:SimpleAgent`.
_MODULE = re.compile(r"(ludus(?:\.\w+){2,}|ludus(?:\.\w+)+(?=:))(?::\w+)?")


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module with its syntax tree. Left out are tests, and the package's `__init__`, which names all rooms."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)) or path.name.startswith("test_"):
            continue
        yield ".".join(("ludus", *parts)).removesuffix(".__init__"), ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def trees() -> dict[str, ast.Module]:
    """All modules, read by the first test and not in every process that collects.

    Syntax trees hold no garbage: to look for some while they grow takes twice as long as to read them.
    """
    gc.disable()
    try:
        return dict(sources())
    finally:
        gc.enable()


def modules_named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The modules of ours that a module names: in imports, wherever these stand, and in texts."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("ludus."):
            names = [found[1]] if (found := _MODULE.fullmatch(node.value)) else []
        for name in names:
            while name.count(".") and name not in trees():
                name = name.rpartition(".")[0]
            if name in trees():
                yield node.lineno, name


@functools.cache
def named_by_modules() -> dict[str, list[tuple[int, str]]]:
    """The modules of ours that each module names, with the lines."""
    return {name: list(modules_named(tree)) for name, tree in trees().items()}


@functools.cache
def edges_of_modules() -> dict[str, set[str]]:
    return {name: {other for _, other in named if other != name} for name, named in named_by_modules().items()}


def room_of(module: str) -> str:
    room = module.split(".")[1]
    return "words" if room in WORDS else room


def test_the_drawing_holds_every_room_once():
    rooms = {path.stem for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    rooms |= {"words", *FILES}
    assert sorted(room for line in DRAWING for room in line) == sorted(rooms)


def test_every_room_is_described():
    described = set(re.findall(r"`(\w+)/`", "".join(re.findall(r"^\| (`[\w/`, ]+) \|", PAGE, re.MULTILINE))))
    assert described == HEIGHTS.keys() - {"words", *FILES}


def test_a_room_knows_only_rooms_on_lines_below_its_own():
    wrong = [
        f"{name}:{line} names {other}"
        for name, named in named_by_modules().items()
        for line, other in named
        if room_of(other) != room_of(name) and HEIGHTS[room_of(other)] >= HEIGHTS[room_of(name)]
    ]
    assert not wrong


def test_no_two_lines_of_the_drawing_could_be_one():
    known = {(room_of(name), room_of(other)) for name, edges in edges_of_modules().items() for other in edges}
    for line, below in pairwise(DRAWING):
        assert any((room, other) in known for room in line for other in below), f"{line} knows none of {below}"


def test_no_modules_import_each_other_in_a_circle():
    assert circles({name: edges for name, edges in edges_of_modules().items() if ".environments" not in name}) == []


@pytest.mark.parametrize(
    ("edges", "found"),
    [({"a": {"b"}, "b": {"c"}, "c": set()}, []), ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [["b", "c"]])],
)
def test_a_circle_would_be_found(edges: dict[str, set[str]], found: list[list[str]]):
    assert circles(edges) == found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each reaches the others."""
    reached = {name: reachable(name, edges) for name in edges}
    groups = {tuple(sorted({name} | {other for other in reached[name] if name in reached[other]})) for name in edges}
    return sorted(list(group) for group in groups if len(group) > 1)


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), set()) & edges.keys() - seen
        seen |= new
        waiting += new
    return seen


def test_digits_in_text_of_others_become_a_number_in_one_place():
    """`²` passes `str.isdigit`, and `int` refuses it: `whole_number` checks and converts."""
    found = []
    for name, tree in trees().items():
        if name.startswith(("ludus.environments.", "ludus.cookbook.", "ludus.sandbox.inside.")):
            continue
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                checked = {
                    ast.dump(call.func.value)
                    for call in calls
                    if isinstance(call.func, ast.Attribute) and call.func.attr in ("isdigit", "isdecimal", "isnumeric")
                }
                converted = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "int"]
                found += [f"{name}:{call.lineno}" for call in converted if ast.dump(call.args[0]) in checked]
    assert not [place for place in found if not place.startswith("ludus.runtime.numbers:")]


def test_the_files_at_the_top_are_the_words():
    files = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__", *FILES}
    assert files == set(WORDS)


def test_environments_do_not_import_each_other():
    for name, named in named_by_modules().items():
        if name.startswith("ludus.environments."):
            own = name.split(".")[2]
            for line, other in named:
                assert not other.startswith("ludus.environments.") or other.split(".")[2] == own, f"{name}:{line}"


def test_recipes_do_not_import_each_other():
    for name, edges in edges_of_modules().items():
        if name.startswith("ludus.cookbook."):
            assert not [other for other in edges if other.startswith("ludus.cookbook")], name


def test_no_two_public_classes_share_a_name():
    """The names of `nemo_gym.sandbox` are NeMo Gym's: some of them are ours too, for other things."""
    found: dict[str, list[str]] = {}
    texts = {str(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGES.glob("*/src/**/*.py"))}
    perhaps = {name: set(re.findall(r"^class (\w+)", text, re.MULTILINE)) for name, text in texts.items()}
    ours = {node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef)}
    often = Counter(chain(ours, *perhaps.values()))
    others = {name: ast.parse(texts[name]) for name, names in perhaps.items() if any(often[each] > 1 for each in names)}
    for name, tree in {**trees(), **others}.items():
        if ".environments" not in name and ".cookbook" not in name and "/nemo_gym/sandbox/" not in name:
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(name)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_the_core_imports_nothing_of_the_other_packages():
    packages = {path.parent.name for path in PACKAGES.glob("*/src/*/__init__.py")}
    assert {
        "ludus_bench",
        "ludus_browser",
        "ludus_data",
        "nemo_gym",
        "ludus_qualify",
        "ludus_sandboxes",
        "ludus_telemetry",
        "ludus_trainers",
        "ludus_transformers",
    } <= packages
    names = re.compile(rf"\b(?:{'|'.join(sorted(packages))})\b")
    imports = {
        f"{name}:{node.lineno}": ast.unparse(node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and names.search(node.value))
    }
    assert [
        place for place, text in imports.items() if re.match(r"['\"]|import|from", text) and names.search(text)
    ] == []


def test_every_public_name_has_a_docstring():
    for name in ludus.__all__:
        assert getattr(ludus, name).__doc__, name
