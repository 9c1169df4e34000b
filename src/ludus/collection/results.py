"""What a collection left, for Python: its rollouts, their rewards, groups, messages and tokens, and a table of it.

`ludus.load` reads a stored run; `ludus.collect` returns the same methods. Files are read line by line: iterating holds
one rollout in memory, and `groups` holds one group and a few bytes for each rollout.
"""

from __future__ import annotations

import html
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.collection.metrics import Metrics
from ludus.outcome import Outcome
from ludus.rollout import Rollout
from ludus.store.loading import RolloutsFile, rollouts_file
from ludus.store.run import Files, recorded_scales
from ludus.tokens import Sequence


class Results:
    """The rollouts of a collection. Iterating yields the completed and masked ones."""

    @abstractmethod
    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts."""

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

    def __repr__(self) -> str:
        facts = _facts(self._metrics())
        width = max(len(name) for name, _ in facts)
        return "\n".join([_printable(self._title()), *(f"  {name:<{width}}  {text}" for name, text in facts)])

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        facts = _facts(self._metrics())
        cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in facts)
        return f"<table><caption>{html.escape(_printable(self._title()))}</caption>{''.join(cells)}</table>"


class Run(Results):
    """A stored run, read from its files when it is asked for. See `ludus.load`.

    run = ludus.load("runs/first")
    best = max(run, key=lambda rollout: rollout.reward)
    print(best.task.responses_create_params, best.messages())
    """

    def __init__(self, path: str | Path) -> None:
        file = rollouts_file(Path(path))
        in_folder = Files(file.parent)
        self.files = in_folder if in_folder.rollouts == file else Files(file)
        self._file = RolloutsFile(file)
        self._computed: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts, in the order of the file."""
        return (rollout for rollout in self._file if rollout.error is None)

    def groups(self) -> Iterator[list[Rollout]]:
        """The completed and masked rollouts of each task, ordered by repeat. One group at a time is in memory."""
        positions: dict[str, list[tuple[int, int]]] = {}
        for position, rollout in self._file.with_positions():
            if rollout.error is None:
                positions.setdefault(rollout.task_id, []).append(position)
        for found in positions.values():
            yield sorted(self._file.at(found), key=lambda rollout: rollout.job.repeat)

    def failures(self) -> Iterator[Rollout]:
        """The failed attempts. A retry of a failed attempt may have completed."""
        yield from (rollout for rollout in self._file if rollout.error is not None)
        if self.files.failures.exists():
            yield from RolloutsFile(self.files.failures)

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json. It is computed from the rollouts if it is missing or older than they are."""
        stored, rollouts = self.files.metrics, self._file.path
        if stored.exists() and stored.stat().st_mtime_ns >= rollouts.stat().st_mtime_ns:
            found: dict[str, Any] = json.loads(stored.read_bytes())
            return found
        if self._computed is None:
            self._computed = self._compute_metrics()
        return self._computed

    def _compute_metrics(self) -> dict[str, Any]:
        metrics, done, failed = Metrics(2**62, recorded_scales(self.files.run)), set[str](), dict[str, Rollout]()
        sizes: Counter[str] = Counter()
        for rollout in self:
            if rollout.rollout_id in done:  # a duplicated line counts once
                continue
            sizes[rollout.task_id] += 1
            done.add(rollout.rollout_id)
            metrics.add(rollout)
        for rollout in self.failures():
            failed[rollout.rollout_id] = rollout
        for name, rollout in failed.items():
            if name not in done:
                metrics.add(rollout)
        metrics.repeats = max(sizes.values(), default=1)
        return metrics.summary()

    def _metrics(self) -> dict[str, Any]:
        return self.metrics

    def _title(self) -> str:
        try:
            identity = json.loads(self.files.run.read_bytes())["identity"]
            return f"{', '.join(identity['environments'])} with {identity['model']['name']}"
        except (OSError, ValueError, KeyError, TypeError):
            names = dict.fromkeys(rollout.job.environment for rollout in self)
            return ", ".join(name for name in names if name) or str(self._file.path)


def load(path: str | Path) -> Run:
    """Read the rollouts of a run: a collection's folder, its rollouts.jsonl, or a file of NeMo Gym's rollouts.

    run = ludus.load("runs/first")
    print(run)
    for rollout in run:
        print(rollout.task.responses_create_params["input"], rollout.reward)
    """
    return Run(path)


def grouped(rollouts: list[Rollout]) -> Iterator[list[Rollout]]:
    """The completed and masked rollouts of each task, ordered by repeat."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.error is None:
            groups.setdefault(rollout.task_id, []).append(rollout)
    for group in groups.values():
        yield sorted(group, key=lambda rollout: rollout.job.repeat)


def _is_completed(rollout: Rollout) -> bool:
    return rollout.outcome is Outcome.COMPLETED


def _facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a table of metrics."""
    if not metrics:
        return [("not run", "call prepare() and await run()")]
    counts, reward = metrics["counts"], metrics["reward"]
    rows = [("rollouts", f"{counts['dispatched']:,}")]
    rows.append(("tasks", f"{len(metrics['tasks']) + metrics['tasks_left_out']:,}"))
    rows += [(name, f"{counts[name]:,}") for name in ("completed", "failed", "masked")]
    rows += [(f"  {_printable(kind)}", f"{count:,}") for kind, count in list(metrics["failures"].items())[:5]]
    if reward["mean"] is not None:
        interval = reward["ci95"]
        spread = f" (95 % {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
        rows.append(("mean reward", f"{reward['mean']:.3f}{spread}"))
    most = max(map(int, metrics["pass@k"]), default=1)
    for k in sorted({1, most}):
        if most > 1 and str(k) in metrics["pass@k"]:
            rows.append((f"pass@{k}", f"{metrics['pass@k'][str(k)]:.3f}"))
    if most > 1 and metrics.get("pass_reward") not in (None, 1.0):
        rows.append(("pass", f"a reward of {metrics['pass_reward']:g} or more"))
    if usage := metrics["usage"]:
        rows.append(("tokens", f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"))
    return rows


def _printable(text: str) -> str:
    """The text in one line, without control characters: names come from files."""
    return "".join(char if char.isprintable() else "?" for char in text[:1000])
