"""`ludus collect inspect:PACKAGE/TASK`: a task of Inspect as one of our environments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ludus.adapter import Listed, Need
from ludus.dataset import Dataset
from ludus.environment import Environment
from ludus.errors import UserError
from ludus_inspect.agent import InspectAgent
from ludus_inspect.needs import needs_of, tasks_in
from ludus_inspect.resources import InspectResources
from ludus_inspect.settings import InspectConfig, InspectTask

_NAME = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


def adapt(which: str) -> Environment | None:
    """The environment of a task; None for a text that names none."""
    task = find_task(which)
    if task is None:
        return None
    return Environment(
        name=task.name,
        resources=InspectResources,
        agent=InspectAgent(),
        config=InspectConfig(task=task),
        description=f"The task {task.text} of Inspect: its solver plays, its scorer judges.",
        datasets=[Dataset(name="samples", generate="ludus_inspect.rows:rows", ends=True)],
        folder=task.file.parent if task.file is not None else None,
        code=(task.file,) if task.file is not None else (),
    )


def needs(which: str) -> list[Need] | None:
    """What a task needs on this machine, as far as its source text tells; None for a text that names none."""
    task = find_task(which)
    return None if task is None else needs_of(task)


def listing(folder: str) -> Iterator[Listed]:
    """The tasks in the Python files of a folder."""
    for file in sorted(Path(folder).rglob("*.py")):
        for name in tasks_in(file):
            task = InspectTask(text=f"{file}@{name}", file=file)
            yield Listed(name=name, path=task.text, needs=tuple(needs_of(task)))


def find_task(which: str) -> InspectTask | None:
    """The task that a text names: `PACKAGE/TASK`, `FILE.py` or `FILE.py@TASK`."""
    path, _, name = which.partition("@")
    if path.endswith(".py"):
        file = Path(path).expanduser().absolute()
        if not file.is_file():
            raise UserError(f"there is no file {path}", "Write inspect:path/to/file.py@task, or inspect:PACKAGE/TASK")
        known = tasks_in(file)
        if not known:
            return None
        return InspectTask(text=f"{file}@{name}" if name else _only(file, known), file=file)
    if Path(which).exists():
        return None
    if _NAME.fullmatch(which):
        return InspectTask(text=which)
    raise UserError(
        f"{which:.100} names no task of Inspect", "Write inspect:PACKAGE/TASK, or inspect:path/to/file.py@task"
    )


def _only(file: Path, known: list[str]) -> str:
    if len(known) > 1:
        hint = " or ".join(f"inspect:{file}@{name}" for name in known[:5])
        raise UserError(f"{file} has several tasks", f"Name one: {hint}")
    return f"{file}@{known[0]}"
