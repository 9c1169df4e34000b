"""`ludus collect harbor:FOLDER`: a Harbor task, or a folder of them, as one of our environments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ludus.adapter import Listed, Need
from ludus.dataset import Dataset
from ludus.environment import Environment
from ludus.environments.terminal.tasks import settings_of, task_folders
from ludus.episode import Limits
from ludus.sandbox.building import problem_with_builds


def adapt(which: str) -> Environment | None:
    """The environment of a folder of tasks; None for any other folder."""
    folder = Path(which).expanduser()
    if not folder.is_dir() or not task_folders(folder):
        return None
    terminal = Environment.load("terminal")
    settings = {"path": str(folder.resolve())}
    tasks = Dataset(name="tasks", generate="tasks.py:stream", settings=settings, ends=True)
    limits = _limits(terminal.limits, task_folders(folder))
    return replace(terminal, name="harbor", datasets=[tasks], limits=limits)


def _limits(limits: Limits, folders: list[Path]) -> Limits:
    """Deadlines that no task reaches before its own times are over: then it has a verdict, and not a failure."""
    opening, judging, playing = limits.open, limits.verify, limits.rollout
    for settings in filter(None, map(settings_of, folders)):
        opening = max(opening, 2 * settings.environment.build_timeout_sec + 60)
        scripts = [step.verifier or settings.verifier for step in settings.steps or ()] or [settings.verifier]
        verdict = max(3 * script.timeout_sec for script in scripts) + 720  # the script; its control runs it twice
        judging = max(judging, verdict)
        agents = [step.agent.timeout_sec or settings.agent.timeout_sec for step in settings.steps or ()]
        acting = sum(seconds or 0 for seconds in agents or [settings.agent.timeout_sec])
        playing = max(playing, opening + acting + 2 * len(scripts) * verdict)
    longer = {"open": opening, "tool": judging, "verify": judging, "rollout": playing}
    return Limits(**{**limits.model_dump(), **longer})


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
