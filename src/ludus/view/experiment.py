"""A folder of runs as an experiment: learning curves over each other, and a table of the settings that differ.

A series is one line of the chart. The runs of a folder that each stand for another checkpoint are one series, as the
evaluations of a training are. Any other run is a series of its own: over its policy versions, or over its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any, NamedTuple

from ludus.errors import UserError, did_you_mean
from ludus.view.live import LiveRuns
from ludus.view.live_run import LiveRun
from ludus.view.places import folders_of, is_below
from ludus.view.settings import differing_settings

#: The most runs of one experiment.
MAX_RUNS = 200

#: The name of a folder that stands for a checkpoint.
_CHECKPOINT = re.compile(
    r"(?:.*[-_.])?(?:step|checkpoint|ckpt|iteration|iter|epoch|round|stage)s?[-_=]?(\d{1,15})|(\d{1,15})", re.IGNORECASE
)

_LAST_NUMBER = re.compile(r"[-_=.]?\d+$")

Point = dict[str, Any]


class ExperimentRun(NamedTuple):
    """A run of an experiment, its line in the list of runs, its name inside the folder, and its curve."""

    run: LiveRun
    line: dict[str, Any]
    name: str
    curve: dict[str, Any]

    @property
    def step(self) -> int | None:
        """The checkpoint that the run stands for: its only policy version, else the number of its folder.

        A model without versions has its own name for one, which may end in a number.
        """
        steps = self.curve["steps"]
        if len(steps) > 1:
            return None
        if steps and steps[0]["version"] != self.line["model"]:
            step: int | None = steps[0]["step"]
            return step
        number = _CHECKPOINT.fullmatch(PurePath(self.name).name)
        return int(number[1] or number[2]) if number else None

    @property
    def started(self) -> float | None:
        """When the run was started, in seconds since 1970."""
        try:
            return datetime.fromisoformat(str(self.run.run.described().get("started"))).timestamp()
        except ValueError:
            return None


def runs_below(runs: LiveRuns, at: str) -> list[LiveRun]:
    """The runs below a folder; all without one. The folder is compared with names of runs, never opened."""
    chosen = [run for run in list(runs.runs.values()) if not at or is_below(run.run.name, at)]
    if at and not chosen:
        folders = [str(folder["at"]) for folder in folders_of(run.run.name for run in runs.runs.values())]
        raise UserError(f"no run lies below {at!r:.200}", did_you_mean(at, folders))
    return sorted(chosen, key=lambda run: run.run.name)[:MAX_RUNS]


def members_of(runs: LiveRuns, at: str) -> list[ExperimentRun]:
    """The runs below a folder with their curves, by name; without those that are not ready."""
    ready = runs.ready(runs_below(runs, at), curves=True)
    return [ExperimentRun(run, line, short_name(run.run.name, at), run.curve()) for run, line in ready]


def experiment_payload(runs: LiveRuns, at: str, figure: str) -> dict[str, Any]:
    """The series of one figure, and the table of runs."""
    members = members_of(runs, at)
    figures = _figures(members)
    chosen = figure if figure in figures else next(iter(figures), "reward")
    columns = differing_settings([member.run.run for member in members])
    lines = [_line(member) for member in members]
    for line, values in zip(lines, columns.values, strict=True):
        line["settings"] = values
    return {
        "at": at,
        "folders": [folder for folder in folders_of(member.run.run.name for member in members) if folder["at"] != at],
        "figures": figures,
        "figure": chosen,
        "series": [_with_figure(*series, chosen) for series in _series(members)],
        "settings": columns.names,
        "settings_left_out": columns.left_out,
        "runs": lines,
        "preparing": (preparing := len(runs_below(runs, at)) - len(members)),
        "stale": preparing > 0 or any(member.curve.get("stale") for member in members),
    }


def _series(members: list[ExperimentRun]) -> Iterator[tuple[str, list[Point]]]:
    """Each series with its points. A point has its `run`, and `step`, `seconds` and `done` since the start."""
    checkpoints: dict[tuple[str, ...], dict[int, list[ExperimentRun]]] = {}
    for member in members:
        if member.step is not None:
            checkpoints.setdefault(_line_of(member), {}).setdefault(member.step, []).append(member)
    together = {
        named: [same[0] for _, same in sorted(steps.items())]
        for named, steps in checkpoints.items()
        if len(steps) > 1 and all(len(same) == 1 for same in steps.values())
    }
    for named, line in together.items():
        alike = [other for other in together if other[0] == named[0]]
        parts = [part for place, part in enumerate(named) if place == 0 or len({other[place] for other in alike}) > 1]
        yield ", ".join(parts), _along(_checkpoint_points(line))
    joined = {member.name for line in together.values() for member in line}
    for member in members:
        if member.name not in joined:
            yield member.name, _along(_own_points(member))


def _line_of(member: ExperimentRun) -> tuple[str, ...]:
    """The folder, the name without its number, and the environments: what the checkpoints of one curve share."""
    path = PurePath(member.name)
    folder = str(path.parent) if path.parent != PurePath() else "these runs"
    return folder, _LAST_NUMBER.sub("", path.name), ", ".join(member.run.run.environments)


def _checkpoint_points(line: list[ExperimentRun]) -> Iterator[Point]:
    for member in line:
        if member.curve["whole"]:
            point = {**member.curve["whole"], "step": member.step, "started": member.started}
            yield {**point, "run": member.run.run.key, "q": ""}


def _own_points(member: ExperimentRun) -> Iterator[Point]:
    """The points of a run that is a series of its own, with the query that finds the rollouts of each."""
    by_step = len(member.curve["steps"]) > 1
    for point in member.curve["steps" if by_step else "parts"]:
        query = f'policy:"{point["version"]}"' if by_step else f"number:{point['first']}..{point['last']}"
        yield {**point, "step": point.get("step"), "run": member.run.run.key, "q": query}


def _along(points: Iterable[Point]) -> list[Point]:
    """Points with what has gone by since the first: seconds and rollouts. A new verifier is marked."""
    along, began, done, verifiers = list[Point](), None, 0, list[str]()
    for point in points:
        began = point["started"] if began is None else began
        done += point["rollouts"]
        seconds = point["started"] - began if point["started"] is not None and began is not None else None
        fresh = point["verifiers"] if verifiers and point["verifiers"] and point["verifiers"] != verifiers else None
        verifiers = point["verifiers"] or verifiers
        along.append({**point, "seconds": seconds, "done": done, "new_verifiers": fresh})
    return along


def _with_figure(name: str, points: list[Point], figure: str) -> dict[str, Any]:
    shown = ("step", "seconds", "done", "rollouts", "run", "q", "new_verifiers")
    return {
        "name": name,
        "points": [
            {**{field: point[field] for field in shown}, "value": point["figures"].get(figure)} for point in points
        ],
    }


def _figures(members: list[ExperimentRun]) -> list[str]:
    """The figures that some point has: those of every run first, then components and values by name."""
    names = dict.fromkeys(
        name for member in members if member.curve["whole"] for name in member.curve["whole"]["figures"]
    )
    passes = sorted((name for name in names if name.startswith("pass@")), key=lambda name: int(name[5:]))
    named = sorted(name for name in names if ":" in name)
    others = [name for name in ("length", "turns", "seconds", "errors", "failed", "masked") if name in names]
    return [name for name in ("reward", *passes, *named, *others) if name in names]


def _line(member: ExperimentRun) -> dict[str, Any]:
    """A run in the table."""
    headline = member.line
    fields = ("key", "counts", "reward", "pass@k", "started", "model", "environments")
    return {
        **{field: headline[field] for field in fields},
        "name": member.name,
        "step": member.step,
        "running": headline["state"]["running"],
        "verifiers": member.curve["whole"]["verifiers"] if member.curve["whole"] else [],
    }


def short_name(name: str, at: str) -> str:
    """The name of a run inside a folder."""
    return str(PurePath(name).relative_to(at)) if at else name
