"""What a task needs on this machine, read from its source text: nothing of it is run."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from ludus.adapter import Need
from ludus.sandbox.choice import find
from ludus_inspect.problems import pip_install
from ludus_inspect.settings import InspectTask

#: Functions that read a dataset from the network, unless it is in a cache.
_REMOTE = {"hf_dataset", "load_dataset", "snapshot_download", "hf_hub_download", "download_and_verify"}


def tasks_in(file: Path) -> list[str]:
    """The names of the functions with `@task` in a file that imports inspect_ai."""
    tree = _parsed(file)
    if tree is None or not any(_imports_inspect(node) for node in ast.walk(tree)):
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if any(_is_task(mark) for mark in node.decorator_list)]


def needs_of(task: InspectTask) -> list[Need]:
    """The needs of a task."""
    return list(_needs(task))


def _needs(task: InspectTask) -> Iterator[Need]:
    inspect = importlib.util.find_spec("inspect_ai") is not None
    install = () if inspect else (pip_install(sys.executable, "inspect-ai"),)
    yield Need("inspect-ai", inspect, "tasks are written for it", install)
    sources = [task.file] if task.file is not None else []
    if task.file is None:
        spec = _package(task.package)
        name = task.package.replace("_", "-")
        why = "the package of the task" if spec else f"no package {task.package} is installed"
        yield Need(name, spec is not None, why, () if spec else (pip_install(sys.executable, name),))
        if spec is not None:
            sources = _files(spec, task.name)
    if not sources:
        return
    names, texts = _words(sources)
    if any(text in ("docker", "local", "k8s") for text in texts) and "sandbox" in names:
        status = find("bubblewrap")
        why = (
            status.problem or "programs run in one of ours; an image of the task must have one here (resources.images)"
        )
        yield Need(
            "sandbox", status.problem is None, why, (status.install,) if status.problem and status.install else ()
        )
    if remote := sorted(names & _REMOTE):
        yield Need("network", None, f"its source calls {', '.join(remote)}: data that is not here is downloaded")
    if names & {"model_graded_qa", "model_graded_fact"}:
        yield Need("judge", None, "a scorer asks a model: --set resources.judge=SPEC")


def _package(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def _files(package: Path, task: str) -> list[Path]:
    """The file of a task in a package, and the files beside it."""
    for file in sorted(package.rglob("*.py")):
        if f"def {task}(" in file.read_text("utf-8", "replace") and task in tasks_in(file):
            beside = sorted(file.parent.glob("*.py"))
            return beside if file.parent != package else [file]
    return []


def _words(files: list[Path]) -> tuple[set[str], set[str]]:
    """The names and the texts that some files hold."""
    names: set[str] = set()
    texts: set[str] = set()
    for tree in filter(None, map(_parsed, files)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg:
                names.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return names, texts


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


def _imports_inspect(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "inspect_ai"
    return isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "inspect_ai" for name in node.names)


def _is_task(mark: ast.expr) -> bool:
    mark = mark.func if isinstance(mark, ast.Call) else mark
    return (isinstance(mark, ast.Name) and mark.id == "task") or (
        isinstance(mark, ast.Attribute) and mark.attr == "task"
    )
