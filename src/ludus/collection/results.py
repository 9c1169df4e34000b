"""What a collection left, for Python: its rollouts, their rewards, groups, messages and tokens, and a table of it.

`ludus.load` reads a stored run; `ludus.collect` returns the same methods. Files are read line by line: iterating holds
one rollout in memory, and `groups` holds one group and a few bytes for each rollout.
"""

from __future__ import annotations

import html
import importlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, overload

from ludus.collection.columns import columns_of
from ludus.collection.metrics import Metrics
from ludus.collection.table import environment_lines, facts, with_place
from ludus.errors import Failure, UserError
from ludus.outcome import Outcome
from ludus.record import verifier_of
from ludus.rollout import Rollout
from ludus.runtime.installed import packaged
from ludus.store.drafts import write_whole
from ludus.store.files import read_json_object
from ludus.store.run import indented_json
from ludus.store.stored_run import StoredRun
from ludus.tokens import Sequence


class Results:
    """The rollouts of a collection. Iterating yields the completed and masked ones; `len`, `[i]` and slices count them.

    `rollouts` is a list of all rollouts, failed ones included: of a large run it fills the memory.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rollouts are completed or masked."""

    @overload
    def __getitem__(self, index: int) -> Rollout: ...

    @overload
    def __getitem__(self, index: slice) -> list[Rollout]: ...

    def __getitem__(self, index: int | slice) -> Rollout | list[Rollout]:
        """The completed or masked rollouts at an index or in a slice."""
        if isinstance(index, slice):
            return self._at(range(len(self))[index])
        try:
            (rollout,) = self._at([range(len(self))[index]])
        except IndexError:
            raise IndexError(f"rollout {index} of {len(self)}") from None
        return rollout

    def __bool__(self) -> bool:
        """True, also without rollouts: this is a result."""
        return True

    @property
    @abstractmethod
    def rollouts(self) -> list[Rollout]:
        """All rollouts as each of them ended, failed ones included."""

    @abstractmethod
    def _at(self, indices: Iterable[int]) -> list[Rollout]:
        """The completed or masked rollouts with these numbers."""

    def to_pandas(self) -> Any:
        """All `rollouts` as a `pandas.DataFrame`: outcome, reward, failure, counts, prompt, answer, verdict values."""
        return _library("pandas").DataFrame(columns_of(self.rollouts))

    def to_polars(self) -> Any:
        """All `rollouts` as a `polars.DataFrame`. See `to_pandas`."""
        return _library("polars").DataFrame(columns_of(self.rollouts), infer_schema_length=None)

    def to_arrow(self) -> Any:
        """All `rollouts` as a `pyarrow.Table`. See `to_pandas`."""
        return _library("pyarrow").table(columns_of(self.rollouts))

    @abstractmethod
    def groups(self) -> Iterator[list[Rollout]]:
        """The completed and masked rollouts of each task, ordered by repeat."""

    @abstractmethod
    def failures(self) -> Iterator[Rollout]:
        """The failed attempts. A retry of a failed attempt may have completed."""

    @abstractmethod
    def _title(self) -> str:
        """What was run, in one line."""

    @abstractmethod
    def _metrics(self) -> dict[str, Any]:
        """The content of metrics.json; empty before the collection has run."""

    def rewards(self) -> list[float]:
        """The rewards of the completed rollouts. A masked rollout is not fit to train on, so its reward is left out."""
        return [rollout.verdict.reward for rollout in self if _is_completed(rollout) and rollout.verdict is not None]

    def messages(self) -> Iterator[list[dict[str, Any]]]:
        """The conversation of each completed or masked rollout. See `Rollout.messages`."""
        return (rollout.messages() for rollout in self)

    def sequences(self) -> Iterator[tuple[Rollout, Sequence]]:
        """The token sequences of the completed rollouts, each with its rollout. See `Rollout.sequences`.

        for rollout, sequence in run.sequences():
            train(sequence.ids, sequence.mask, sequence.logprobs, rollout.reward)
        """
        return ((rollout, sequence) for rollout in self if _is_completed(rollout) for sequence in rollout.sequences())

    def facts(self) -> list[tuple[str, str]]:
        """The rows of the printed table, a name and a text each. The texts may quote models and files."""
        metrics = self._metrics()
        if not metrics:
            return [("not run", "call prepare() and await run()")]
        rows = facts(metrics)
        if (error := self._first_failure(metrics["counts"])) is not None:
            rows.append(("first failure", with_place(error.cause, error.where)))
        return rows + [("warning", warning) for warning in metrics.get("warnings", [])]

    def _first_failure(self, counts: dict[str, int]) -> Failure | None:
        """The first failure that no retry mended, if no rollout completed."""
        if counts["completed"] or not counts["failed"]:
            return None
        ended = {rollout.rollout_id for rollout in self} if counts["masked"] else set[str]()
        return next((rollout.error for rollout in self.failures() if rollout.rollout_id not in ended), None)

    def __repr__(self) -> str:
        rows = [(_printable(name), _printable(text)) for name, text in self.facts()]
        width = max(len(name) for name, _ in rows)
        lines = [_printable(self._title()), *(f"  {name:<{width}}  {text}" for name, text in rows)]
        return "\n".join([*lines, *_aligned(environment_lines(self._metrics()))])

    def _repr_html_(self) -> str:
        """The tables as a notebook shows them."""
        cells = (f"<tr><th>{_escaped(name)}</th><td>{_escaped(text)}</td></tr>" for name, text in self.facts())
        table = f"<table><caption>{_escaped(self._title())}</caption>{''.join(cells)}</table>"
        if not (lines := environment_lines(self._metrics())):
            return table
        rows = [f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in line)}</tr>" for line in lines[1:]]
        header = "".join(f"<th>{_escaped(cell)}</th>" for cell in lines[0])
        return f"{table}<table><tr>{header}</tr>{''.join(rows)}</table>"


class Run(Results):
    """A stored run, read from its files when it is asked for. See `ludus.load`.

    run = ludus.load("runs/first")
    best = max(run, key=lambda rollout: rollout.reward)
    print(best.task.responses_create_params, best.messages())
    """

    def __init__(self, path: str | Path) -> None:
        self.stored = StoredRun.opened(path)
        self.files = self.stored.files
        self._computed: dict[str, Any] | None = None
        self._positions: tuple[int, list[tuple[int, int]]] | None = None

    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts, in the order of the file."""
        return (rollout for rollout in self.stored.rollouts() if rollout.error is None)

    def __len__(self) -> int:
        """How many rollouts of the file are completed or masked."""
        return len(self._rewarded())

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts as each of them ended, failed ones last."""
        return [rollout for rollout, is_last in self.attempts() if is_last]

    def _at(self, indices: Iterable[int]) -> list[Rollout]:
        positions = self._rewarded()
        return self.stored.at(positions[index] for index in indices)

    def _rewarded(self) -> list[tuple[int, int]]:
        """Where the completed and masked rollouts lie. They are looked for again if the file has grown."""
        size = self.files.rollouts.stat().st_size
        if self._positions is None or self._positions[0] != size:
            self._positions = size, list(self.stored.rewarded_positions())
        return self._positions[1]

    def groups(self) -> Iterator[list[Rollout]]:
        """The completed and masked rollouts of each task, ordered by repeat. One group at a time is in memory.

        A group has one verifier: where two judged the rollouts of a task, they are two groups.
        """
        positions: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for position, rollout in self.stored.with_positions():
            if rollout.error is None:
                positions.setdefault((rollout.task_id, verifier_of(rollout.receipt)), []).append(position)
        for group in positions.values():
            yield sorted(self.stored.at(group), key=lambda rollout: rollout.job.repeat)

    def failures(self) -> Iterator[Rollout]:
        """The failed attempts. A retry of a failed attempt may have completed."""
        return (rollout for rollout, _ in self.attempts() if rollout.outcome is Outcome.FAILED)

    def attempts(self) -> Iterator[tuple[Rollout, bool]]:
        """Every attempt, and whether it is how its rollout ended: not if it failed and was tried again."""
        return self.stored.attempts()

    def export(self, to: str, output: str | Path, **options: Any) -> Any:
        """Write a training set in the format `to`, as `ludus data export` does.

        run.export("dpo", "dpo.jsonl", pairs=PairRule(margin=0.5))
        """
        export = packaged("ludus.exports", "export", "run.export", "data")
        return export(self.files.rollouts, to, output, **options)

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json. It is computed from the rollouts if it is missing or older than they are."""
        if stored := self.stored.metrics():
            return stored
        if self._computed is None:
            self._computed = self._compute_metrics()
        return self._computed

    @property
    def warnings(self) -> list[str]:
        """Sentences about mistakes that did not stop the run, as metrics.json records them."""
        return list(self.metrics.get("warnings", []))

    def update_metrics(self) -> Path | None:
        """Write metrics.json anew for rollouts with new rewards, and return its path; None if the run has none.

        Fields that are not computed from rollouts stay: the model, the event loop, the warnings, the wall time.
        """
        path = self.files.metrics
        stored = read_json_object(path)
        seconds = stored.get("seconds")
        if not isinstance(seconds, dict) or "wall" not in seconds:
            return None
        computed = self._compute_metrics()
        computed["seconds"]["wall"] = seconds["wall"]
        write_whole(path, indented_json({**stored, **computed}) + b"\n")
        return path

    def _compute_metrics(self) -> dict[str, Any]:
        metrics, sizes = Metrics(2**62, self.stored.scales), Counter[str]()
        for rollout, is_last in self.attempts():
            if is_last:
                sizes[rollout.task_id] += rollout.error is None
                metrics.add(rollout)
        metrics.repeats = max(sizes.values(), default=1)
        return metrics.summary()

    def _metrics(self) -> dict[str, Any]:
        return self.metrics

    def _title(self) -> str:
        if self.stored.environments and self.stored.model:
            return f"{', '.join(self.stored.environments)} with {self.stored.model}"
        names = dict.fromkeys(rollout.job.environment for rollout in self)
        return ", ".join(name for name in names if name) or str(self.files.rollouts)


def load(path: str | Path) -> Run:
    """Read the rollouts of a run: a collection's folder, its rollouts.jsonl, or a file of NeMo Gym's rollouts.

    run = ludus.load("runs/first")
    print(run)
    for rollout in run:
        print(rollout.task.responses_create_params["input"], rollout.reward)
    """
    return Run(path)


def grouped(rollouts: list[Rollout]) -> Iterator[list[Rollout]]:
    """The completed and masked rollouts of each task, ordered by repeat. A group has one verifier."""
    groups: dict[tuple[str, str], list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.error is None:
            groups.setdefault((rollout.task_id, verifier_of(rollout.receipt)), []).append(rollout)
    for group in groups.values():
        yield sorted(group, key=lambda rollout: rollout.job.repeat)


def _library(name: str) -> Any:
    """Import what makes tables."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{name} is not installed", f"Install it with: pip install {name}") from error


def _is_completed(rollout: Rollout) -> bool:
    return rollout.outcome is Outcome.COMPLETED


def _printable(text: str) -> str:
    """The text in one line, without control characters: names come from files."""
    return "".join(char if char.isprintable() else "?" for char in text[:1000].replace("\n", " "))


def _escaped(text: str) -> str:
    return html.escape(_printable(text))


def _aligned(lines: list[list[str]]) -> list[str]:
    """The lines of a table, its columns as wide as their widest cells."""
    cells = [[_printable(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
