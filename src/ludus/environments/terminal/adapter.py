"""`ludus collect harbor:FOLDER`: a Harbor task, or a folder of them, as one of our environments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ludus.adapter import Listed, Need
from ludus.dataset import Dataset
from ludus.environment import Environment
from ludus.environments.terminal.tasks import task_folders
from ludus.sandbox.building import problem_with_builds


def adapt(which: str) -> Environment | None:
    """The environment of a folder of tasks; None for any other folder."""
    folder = Path(which).expanduser()
    if not folder.is_dir() or not task_folders(folder):
        return None
    terminal = Environment.load("terminal")
    settings = {"path": str(folder.resolve())}
    tasks = Dataset(name="tasks", generate="tasks.py:stream", settings=settings, ends=True)
    return replace(terminal, name="harbor", datasets=[tasks])


def needs(which: str) -> list[Need] | None:
    """What the tasks of a folder need on this machine; None for any other folder."""
    if adapt(which) is None:
        return None
    folders = task_folders(Path(which).expanduser())
    needed = []
    if any((folder / "environment" / "Dockerfile").is_file() for folder in folders):
        problem = problem_with_builds()
        why, command = problem or ("Dockerfiles can be built", "")
        needed.append(Need("images", problem is None, why, (command,) if command else ()))
    runner = "runc" if needed else "bwrap"
    needed.append(Need("sandbox", shutil.which(runner) is not None, f"{runner} runs the boxes"))
    return needed


def listing(folder: str) -> Iterator[Listed]:
    """The tasks of a folder."""
    for task in task_folders(Path(folder)):
        yield Listed(task.name, str(task), "agent", 1)
