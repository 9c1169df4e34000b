"""Checks whether the rollouts of a collection are sound: readable, complete, and in agreement with their trajectories.

A rollout without a trajectory is `unobserved`: nobody can say whether its model calls went well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field

from ludus.runtime.encoding import encode
from ludus.store.drafts import write_whole
from nemo_gym._health_checks import (
    RECORD_CHECKS,
    TRAJECTORY_CHECKS,
    Record,
    check_names,
    trajectory_of,
)

__all__ = ["HealthFinding", "HealthReport", "RolloutHealth", "run_health_checks"]

Verdict = Literal["healthy", "unhealthy", "unobserved"]


class _Readable(BaseModel):
    """A result whose fields are attributes and keys."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class HealthFinding(_Readable):
    """A problem that a check found."""

    check: str
    detail: str


class RolloutHealth(_Readable):
    """The verdict about one line of a file. `unobserved` lists the checks that had nothing to look at."""

    path: str
    line: int
    task_index: int | None = None
    rollout_index: int | None = None
    verdict: Verdict = "healthy"
    findings: list[HealthFinding] = Field(default_factory=list)
    unobserved: list[str] = Field(default_factory=list)


class HealthReport(_Readable):
    """The verdicts about all rollouts, their counts, and the files that hold both."""

    summary: dict[str, Any]
    rollouts: list[RolloutHealth]
    summary_path: Path
    verdicts_path: Path


def run_health_checks(
    paths: str | Path | Iterable[str | Path],
    *,
    output_dir: str | Path | None = None,
    workers: int | None = None,
    ignored_checks: Sequence[str] = (),
) -> HealthReport:
    """Check every rollout of the files, and write the summary and the verdicts.

    A folder stands for its `.jsonl` files. The results are written to `output_dir`, else beside the first file.
    `workers` changes nothing: the checks take less time than starting processes.
    """
    ignored = check_names(ignored_checks)
    files = _files([paths] if isinstance(paths, (str, Path)) else list(paths))
    rollouts: list[RolloutHealth] = []
    pairs: dict[tuple[int, int], RolloutHealth] = {}
    for file in files:
        for number, line in enumerate(file.read_bytes().splitlines(), start=1):
            if line.strip():
                rollouts.append(_check(file, number, line, pairs, ignored))
    for rollout in rollouts:
        rollout.verdict = _verdict(rollout)
    tasks = _check_tasks(rollouts, ignored)
    summary = {
        "rollouts": len(rollouts),
        **{verdict: sum(r.verdict == verdict for r in rollouts) for verdict in ("healthy", "unhealthy", "unobserved")},
        "findings": dict(Counter(finding.check for rollout in rollouts for finding in rollout.findings)),
        "tasks": tasks,
        "ignored_checks": sorted(ignored),
    }
    folder = Path(output_dir) if output_dir is not None else files[0].parent
    report = HealthReport(
        summary=summary,
        rollouts=rollouts,
        summary_path=folder / "rollout_health_summary.json",
        verdicts_path=folder / "rollout_health_verdicts.jsonl",
    )
    write_whole(report.summary_path, orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    write_whole(report.verdicts_path, b"".join(encode(rollout.model_dump()) + b"\n" for rollout in rollouts))
    return report


def _files(paths: list[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise ValueError("there is no file of rollouts: pass paths of .jsonl files, or of folders that have some")
    return files


def _check(
    file: Path, number: int, line: bytes, pairs: dict[tuple[int, int], RolloutHealth], ignored: frozenset[str]
) -> RolloutHealth:
    rollout = RolloutHealth(path=str(file), line=number)

    def find(check: str, detail: str | None) -> None:
        if detail is not None and check not in ignored:
            rollout.findings.append(HealthFinding(check=check, detail=detail))

    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        find("record_unreadable", str(error))
        return rollout
    if not isinstance(record, dict):
        find("record_unreadable", f"the line is a {type(record).__name__}, not an object")
        return rollout
    rollout.task_index, rollout.rollout_index = (_index(record, name) for name in ("task", "rollout"))
    if rollout.task_index is not None and rollout.rollout_index is not None:
        pair = rollout.task_index, rollout.rollout_index
        if pair in pairs:
            find("rollout_duplicate_identity", f"{pairs[pair].path}:{pairs[pair].line} is the same rollout")
        pairs.setdefault(pair, rollout)
    for name, check in RECORD_CHECKS.items():
        find(name, check(record))
    for name, check in TRAJECTORY_CHECKS.items():
        if trajectory_of(record) is not None:
            find(name, check(record))
        elif name not in ignored:
            rollout.unobserved.append(name)
    return rollout


def _index(record: Record, name: str) -> int | None:
    index = record.get(f"_ng_{name}_index")
    return index if isinstance(index, int) else None


def _verdict(rollout: RolloutHealth) -> Verdict:
    if rollout.findings:
        return "unhealthy"
    return "unobserved" if rollout.unobserved else "healthy"


def _check_tasks(rollouts: list[RolloutHealth], ignored: frozenset[str]) -> list[dict[str, Any]]:
    """The tasks with fewer rollouts than others, and those without a single healthy one."""
    by_task: dict[int, list[RolloutHealth]] = {}
    for rollout in rollouts:
        if rollout.task_index is not None:
            by_task.setdefault(rollout.task_index, []).append(rollout)
    most = max(map(len, by_task.values()), default=0)
    findings = []
    for task, played in sorted(by_task.items()):
        problems = {
            "task_missing_rollouts": f"{len(played)} of {most} rollouts" if len(played) < most else None,
            "task_without_healthy_rollout": "all unhealthy" if all(r.findings for r in played) else None,
        }
        findings += [
            {"task_index": task, "check": check, "detail": detail}
            for check, detail in problems.items()
            if detail is not None and check not in ignored
        ]
    return findings
