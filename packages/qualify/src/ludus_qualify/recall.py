"""Which stored rewards would a fixed verifier change, and which policies were trained on them? `ludus recall`.

It is a `ludus verify --stale` of several runs, and its output is compared with the runs line by line, so it lives in
the same room. Runs are read as streams: in memory are one byte for each rollout of a run, and the counts by policy
version and by changed row of the dataset. The runs are not changed. A corrected run gets a folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from ludus.data.row_environments import EnvironmentSpec
from ludus.environment import Environment
from ludus.errors import Failure, UserError
from ludus.folder import option_for
from ludus.record import Row
from ludus.rescore.changes import KINDS
from ludus.rescore.rescoring import Rescoring
from ludus.runtime.encoding import encode
from ludus.runtime.running import run_to_end
from ludus.store.drafts import draft, draft_path
from ludus.store.files import Files
from ludus.store.lines import StoredLines
from ludus.store.parsing import parse
from ludus.store.stored import StoredRow
from ludus.store.stored_run import StoredRun, each_run_once
from ludus_qualify.recalled import CHANGED, PolicyVersion, Tally, by_policy, finding_of

#: How many changed rollouts and rows of the dataset the summary lists. The file `changes.jsonl` has all rollouts.
MAX_LISTED = 1000

#: How many other environments an error names.
_MOST_NAMES = 5

_HINT = "Choose another --output"


class RecalledRun:
    """One run: its counts, and the corrected copy if there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored = StoredRun.opened(path)
        self.files = self.stored.files
        self.name, self.rollouts = self.files.name, self.files.rollouts
        self.tally = Tally()
        self.other = 0  # rollouts of other environments
        self.corrected: Path | None = None

    def summary(self) -> dict[str, Any]:
        """The counts of the run as a JSON object."""
        corrected = str(self.corrected) if self.corrected is not None else None
        counts = {**self.tally.summary(), "other_environments": self.other}
        return {"run": str(self.path), "dataset": self.stored.dataset or None, **counts, "corrected": corrected}


class Recall:
    """Scores runs again with an environment's verifier as it is now. `all_rows` scores rows with a valid receipt, too.

    recall = Recall(["runs/first", "runs/second"], "./bank", output="recalled")
    for rescoring in recall.rescorings():
        await rescoring.run()
    recall.summary()["policies"]
    """

    def __init__(
        self,
        runs: Iterable[str | Path],
        environment: EnvironmentSpec,
        *,
        output: str | Path | None = None,
        settings: dict[str, Any] | None = None,
        all_rows: bool = False,
        concurrency: int = 64,
    ) -> None:
        self.runs = [RecalledRun(path) for path in each_run_once(runs, "ludus recall --env ENV")]
        self.output = Path(output) if output is not None else None
        if self.output is not None and not _is_free(self.output):
            raise UserError(f"{self.output} exists already", _HINT)
        self._environment = environment
        options: dict[str, Any] = {"settings": settings, "stale": not all_rows, "only": True}
        self._options = {**options, "concurrency": concurrency}
        self.total = Tally()
        self.policies: dict[PolicyVersion, Tally] = {}
        self.tasks: dict[str, Tally] = {}  # of tasks with a changed rollout
        self.failures: list[Row] = []
        self.changes: list[Row] = []
        self._others: dict[str, None] = {}  # environments that rollouts name, as long as none is of the given one

    def rescorings(self) -> Generator[Rescoring]:
        """The scoring of each run. Await its `run()` before you ask for the next one."""
        self._check_recorded()
        with contextlib.ExitStack() as stack:
            try:
                if self.output is not None:
                    if not self.output.exists():
                        stack.push(self._remove_empty_output)
                    self.output.mkdir(parents=True, exist_ok=True)
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix=".recall-", dir=self.output))
            except OSError as error:
                raise UserError(f"cannot write {self.output}: {error.strerror}", _HINT) from error
            lines = draft(self.output / "changes.jsonl", _HINT) if self.output is not None else contextlib.nullcontext()
            with lines as listed:
                for run in self.runs:
                    if not run.rollouts.stat().st_size:  # every rollout failed, so there are no rewards
                        continue
                    scored = Path(scratch, "rollouts.jsonl")
                    rescoring = Rescoring(run.rollouts, self._environment, output=scored, **self._options)
                    yield rescoring
                    for change in self._compared(run, rescoring, scored):
                        if listed is not None:
                            listed.write(encode(change) + b"\n")
                    self._keep(run, scored)
                self._check_environment()

    def summary(self) -> dict[str, Any]:
        """All findings as one JSON object."""
        most = sorted(self.tasks.items(), key=lambda task: (-task[1].changed, task[0]))
        return {
            **self.total.summary(),
            "runs": [run.summary() for run in self.runs],
            "policies": list(by_policy(self.policies)),
            "dataset_rows": [{"task_id": name, **_changed(tally)} for name, tally in most[:MAX_LISTED]],
            "dataset_rows_changed": len(self.tasks),
            "changes": self.changes,
            "failures": self.failures,
            "output": str(self.output) if self.output is not None else None,
        }

    def _check_recorded(self) -> None:
        """Refuse an environment that run.json of no run names, before a rollout is scored."""
        recorded = [StoredRun(run.path).environments for run in self.runs]
        if all(recorded):
            names = dict.fromkeys(name for run in recorded for name in run)
            if Environment.load(self._environment).name not in names:
                self._others = dict.fromkeys(list(names)[:_MOST_NAMES])
                self._check_environment()

    def _check_environment(self) -> None:
        """Refuse an environment without rollouts in these runs: a report of zeros would read as good news."""
        if self.total.findings or not self._others:
            return
        wanted = getattr(self._environment, "name", self._environment)  # of a Path: the folder's name
        runs = str(self.runs[0].path) if len(self.runs) == 1 else f"the {len(self.runs)} runs"
        others = ", ".join(f"{name:.80}" for name in self._others)
        hint = f"Use --env {option_for(next(iter(self._others)))}"
        raise UserError(f"no rollout of {runs} is of the environment {wanted}, they are of {others}", hint)

    def _remove_empty_output(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error, take away the folder that was made for the output, unless a corrected run is in it."""
        if self.output is not None and kind is not None and issubclass(kind, UserError):
            with contextlib.suppress(OSError):
                self.output.rmdir()

    def _compared(self, run: RecalledRun, rescoring: Rescoring, scored: Path) -> Iterator[Row]:
        """Count the rollouts of a run, and yield each one that changed or could not be judged."""
        with StoredLines(run.rollouts) as old, StoredLines(scored) as new:
            kinds = rescoring.changes.by_row
            for kind, (number, before, counts), (_, after, _) in zip(kinds, old, new, strict=False):
                name = KINDS[kind]
                if not counts:
                    continue
                if name == "other":
                    run.other += 1
                    if not self.total.findings and len(self._others) < _MOST_NAMES:
                        self._others.setdefault(_environment_of(before))
                    continue
                rows = _parsed(before), _parsed(after) if before != after else {}
                finding, trained_on = finding_of(name, *rows), _is_completed(rows[0])
                policy = PolicyVersion.of(rows[0])
                for tally in (self.total, run.tally, self.policies.setdefault(policy, Tally())):
                    tally.add(finding, trained_on)
                if finding in CHANGED or finding == "failed":
                    yield self._listed(run, number, rows, policy, finding)

    def _listed(self, run: RecalledRun, number: int, rows: tuple[Row, Row], policy: PolicyVersion, finding: str) -> Row:
        """The entry of a rollout in the list of changes, or of failures."""
        before, after = rows
        trained_on = _is_completed(before)
        head = StoredRow(before, number).head
        entry = {"run": str(run.path), "line": number, "rollout_id": head["rollout_id"], "task_id": head["task_id"]}
        entry |= {"policy_version": policy.version, "model": policy.model, "finding": finding}
        entry |= {"before": before.get("reward"), "trained_on": trained_on}
        if finding == "failed":
            entry |= {name: after.get(name) for name in ("stage", "kind", "cause")}
            listed = self.failures
        else:
            entry |= {"after": after["reward"], "mask": after.get("mask")}
            listed = self.changes
            self.tasks.setdefault(str(head["task_id"]), Tally()).add(finding, trained_on)
        if len(listed) < MAX_LISTED:
            listed.append(entry)
        return entry

    def _keep(self, run: RecalledRun, scored: Path) -> None:
        """Move the corrected rollouts into the output folder, beside copies of the run's other files.

        A run in which nothing changes gets no copy.
        """
        findings = run.tally.findings
        if self.output is not None and (run.tally.changed or findings["failed"] or findings["new"]):
            folder = _unused(self.output, run.name)
            with contextlib.ExitStack() as stack:
                stack.callback(shutil.rmtree, part := draft_path(folder), ignore_errors=True)
                try:
                    part.mkdir()
                    files = Files(part)
                    os.replace(scored, files.rollouts)
                    for own, copy in ((run.files.run, files.run), (run.files.failures, files.failures)):
                        if own.exists():
                            shutil.copyfile(own, copy)
                    os.replace(part, folder)
                except OSError as error:
                    raise UserError(f"cannot write {folder}: {error.strerror}", _HINT) from error
            run.corrected = folder
        scored.unlink(missing_ok=True)


def recall(runs: Iterable[str | Path], environment: str | Path, **options: Any) -> Recall:
    """Find the stored rewards that an environment's verifier would change. Keyword arguments are those of `Recall`.

    recall(["runs/first"], "./bank").total.findings["wrong"]
    """
    recalled = Recall(runs, environment, **options)
    with contextlib.closing(recalled.rescorings()) as rescorings:
        for rescoring in rescorings:
            run_to_end(rescoring.run())
    return recalled


def _parsed(line: bytes) -> Row:
    """The object of a line. A line that cannot be read is a failure that `ludus verify` has found already."""
    try:
        return parse(line)
    except Failure:
        return {}


def _environment_of(line: bytes) -> str:
    """The environment that a rollout of another environment names."""
    return str(_parsed(line).get("agent_ref", {}).get("name"))


def _is_completed(row: Row) -> bool:
    """Whether a rollout was fit to train on. Rows of other programs do not say, and have a reward."""
    return bool(row.get("outcome", "completed") == "completed")


def _changed(tally: Tally) -> dict[str, int]:
    return {name: tally.findings[name] for name in CHANGED}


def _is_free(path: Path) -> bool:
    """Whether nothing is there, or an empty folder."""
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _unused(folder: Path, name: str) -> Path:
    """A path in the folder that no other run has taken: runs of different folders may have the same name."""
    taken, number = folder / name, 2
    while taken.exists() or taken.name == "changes.jsonl":
        taken, number = folder / f"{name}-{number}", number + 1
    return taken
