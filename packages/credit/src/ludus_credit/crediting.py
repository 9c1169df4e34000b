"""Crediting the turns of a run: plan the continuations, play those that are not cached, write the credited rollouts.

The run is never changed. The output folder holds `rollouts.jsonl` (the credited rollouts, with `turn_rewards`),
`credit.json` (counts and cost) and `continuations/` (the cache, a collection for each policy and number of branches).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ludus.collection.branching import check_agents
from ludus.collection.collection import Collection, Environments
from ludus.collection.options import Options
from ludus.data.row_environments import RowEnvironments
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.runtime.encoding import encode
from ludus.runtime.regular_files import read_regular
from ludus.runtime.running import run_to_end
from ludus.store.drafts import draft, write_whole
from ludus.store.figures import USUAL_RANGE
from ludus.store.files import Files
from ludus.store.run import identity, indented_json
from ludus_credit.continuations import Continuations, Spending
from ludus_credit.model import recorded_model
from ludus_credit.turns import EveryTurn, RecordedTurns
from ludus_credit.values import Estimate, known, value_of, worths

#: How many rollouts without credit, and how many costly turns, the summary lists.
MAX_LISTED = 10


class Crediting:
    """One run whose turns are credited: `plan`, then play `collection()`, then `write`.

    crediting = Crediting("runs/first", "./corridor", model="openai:NAME")
    print(crediting.plan())
    """

    def __init__(
        self,
        run: str | Path,
        environment: Environments = None,
        *,
        model: str | Model | None = None,
        branches: int = 4,
        output: str | Path | None = None,
        limit: int | None = None,
        concurrency: int | None = None,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.run, path = str(run), Path(run)
        self._files = Files.of(path)
        self.output = Path(output) if output is not None else _default_output(path)
        self.branches, self._seed, self._concurrency = branches, seed, concurrency
        settings = dict(settings or {})
        model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
        if model is None and model_settings:
            raise UserError(f"model.{min(model_settings)} needs a model to set it on", "Add --model SPEC")
        self._environments = RowEnvironments(environment, settings)
        self.turns = EveryTurn(self._files.rollouts, self._environments, limit)
        _check_output(self.output, self._files.rollouts)
        self.model = open_model(model, model_settings) if model is not None else recorded_model(self._files)
        self._folder: Path | None = None
        self._before = Spending()
        self._plan: dict[str, Any] = {}

    def plan(self) -> dict[str, Any]:
        """Check the run, and say how many continuations are needed, how many are cached, and what the rest may cost.

        The estimate assumes that a continuation makes as many calls as the recorded rollout made from there on.
        """
        self.turns.survey()
        environments = self._environments.all()
        self._environments.check_settings()
        check_agents(environments)
        policy = indented_json(identity(environments, self.model, {"branches": self.branches}, self._seed))
        self._folder = self.output / "continuations" / blake2b(policy, digest_size=8).hexdigest()
        cached = Continuations(self._folder)
        self._before, estimate = cached.spent, Spending()
        rollouts = turns = needed = done = 0
        points = set[str]()
        for recorded in self.turns.rollouts():
            rollouts += 1
            turns += len(recorded.turns)
            if recorded.key in points:
                continue  # shares the continuations of another rollout
            points.add(recorded.key)
            usage = recorded.stored.row.get("usage")
            for turn in recorded.turns:
                have = min(cached.of(recorded.point(turn)).done, self.branches)
                needed, done, missing = needed + self.branches, done + have, self.branches - have
                calls = missing * (recorded.calls - turn)
                estimate.add(usage, calls, calls / len(recorded.turns), missing)
        self._plan = {
            "run": self.run,
            "output": str(self.output),
            "model": self.model.name,
            "branches": self.branches,
            "rollouts": {"to_credit": rollouts, **_left_out(self.turns.counts)},
            "turns": turns,
            "continuations": {"needed": needed, "cached": done},
            "estimate": asdict(estimate),
        }
        return self._plan

    def collection(self) -> Collection | None:
        """The collection that plays what is missing; None if nothing is."""
        counts = self._plan["continuations"]
        if counts["needed"] == counts["cached"]:
            return None
        options = Options(
            model=self.model,
            output=self._folder,
            repeats=self.branches,
            concurrency=self._concurrency,
            seed=self._seed,
            resume=True,
            force=True,  # the folder's name is the identity; rollouts may have been added to the run
        )
        return Collection(self._environments, options, self.turns)

    def write(self) -> dict[str, Any]:
        """Write the credited rollouts and `credit.json`. Returns the summary, the content of `credit.json`."""
        assert self._folder is not None, "call plan() first"
        played = Continuations(self._folder)
        counts, failures, points = Counter[str](), Counter[str](), set[str]()
        without: list[dict[str, Any]] = []
        costly: list[dict[str, Any]] = []
        path = self.output / "rollouts.jsonl"
        with draft(path, "Choose another --output", sync=True) as file:
            for recorded in self.turns.rollouts():
                if recorded.key not in points:
                    points.add(recorded.key)
                    self._count(recorded, played, counts, failures)
                values = self._values(recorded, played)
                if isinstance(values, str):
                    counts["without_credit"] += 1
                    without.append({"rollout_id": recorded.stored.name, "why": values})
                    del without[MAX_LISTED:]
                    continue
                credits = worths(values)
                file.write(self._credited_line(recorded, values, credits))
                counts["credited"] += 1
                costly = sorted([*costly, _lowest(recorded, credits)], key=lambda turn: turn["credit"])[:MAX_LISTED]
        plan = self._plan
        summary = {
            **{key: plan[key] for key in ("run", "output", "model", "branches")},
            "rollouts": {
                "credited": counts["credited"],
                "without_credit": counts["without_credit"],
                **_left_out(self.turns.counts),
            },
            "turns": plan["turns"],
            "continuations": {
                **plan["continuations"],
                **{kind: counts[kind] for kind in ("completed", "masked", "failed")},
            },
            "failed_attempts": dict(failures.most_common()),
            "cost": {"estimated": plan["estimate"], "spent": played.spent.since(self._before)},
            "lowest_credit": costly,
            "first_without_credit": without,
        }
        with contextlib.suppress(OSError):  # so that the credited rollouts are read with the run's pass reward
            write_whole(self.output / "run.json", read_regular(self._files.run))
        write_whole(self.output / "credit.json", indented_json(summary) + b"\n")
        return summary

    def _count(
        self, recorded: RecordedTurns, played: Continuations, counts: Counter[str], failures: Counter[str]
    ) -> None:
        for turn in recorded.turns:
            results = played.of(recorded.point(turn))
            counts["completed"] += len(results.rewards)
            counts["masked"] += results.masked
            counts["failed"] += self.branches - results.done
            failures.update(results.failed)

    def _values(self, recorded: RecordedTurns, played: Continuations) -> list[Estimate] | str:
        """The values before each turn and after the last, or the reason why one of them is unknown."""
        reward = recorded.stored.reward
        assert reward is not None
        bounds = self.turns.environment_of(recorded).reward_range or USUAL_RANGE
        values = []
        for turn in recorded.turns:
            results = played.of(recorded.point(turn))
            value = value_of(results.rewards, bounds)
            if value is None:
                why = f"{results.masked} masked" if results.masked else results.cause or "none was played"
                return f"no continuation from turn {turn + 1} completed: {why:.300}"
            values.append(value)
        return [*values, known(reward)]

    def _credited_line(self, recorded: RecordedTurns, values: list[Estimate], credits: list[Estimate]) -> bytes:
        """The record with a reward for each model call: 0 for the calls that were given to the rollout."""
        unknown = [None] * recorded.first
        row = {
            **recorded.stored.with_exact_integers(recorded.line).row,
            "turn_rewards": [*[0.0] * recorded.first, *(credit.mean for credit in credits)],
            "turn_credit": {
                "model": self.model.name,
                "branches": self.branches,
                "values": [*unknown, *(value.mean for value in values)],
                "intervals": [*unknown, *(credit.interval for credit in credits)],
                "continuations": [*unknown, *(credit.count for credit in credits)],
            },
        }
        return encode(row) + b"\n"


def credit(run: str | Path, environment: Environments = None, **options: Any) -> dict[str, Any]:
    """Credit the turns of a run. Returns the summary. The options are those of `Crediting`.

    credit("runs/first", "./corridor", model="openai:NAME", branches=4)
    """
    crediting = Crediting(run, environment, **options)
    crediting.plan()
    collection = crediting.collection()
    if collection is not None:
        run_to_end(collection.run(collection.prepare()))
    return crediting.write()


def _lowest(recorded: RecordedTurns, credits: list[Estimate]) -> dict[str, Any]:
    """The turn of a rollout that was worth least. Turns are counted from 1 for people."""
    worst = min(range(len(credits)), key=lambda index: credits[index].mean)
    low, interval = credits[worst], credits[worst].interval
    name, turn = recorded.stored.name, recorded.first + worst + 1
    return {"rollout_id": name, "turn": turn, "credit": low.mean, "interval": list(interval) if interval else None}


def _left_out(counts: Counter[str]) -> dict[str, int]:
    return {kind: counts[kind] for kind in ("masked", "failed", "without_calls")}


def _default_output(path: Path) -> Path:
    return path.with_name(f"{path.stem}.credit") if path.suffix == ".jsonl" else path / "credit"


def _check_output(output: Path, source: Path) -> None:
    """Refuse a folder with the rollouts of somebody else: the credited ones would replace them."""
    held = output / "rollouts.jsonl"
    if held.exists() and (not (output / "continuations").is_dir() or held.samefile(source)):
        raise UserError(f"{output} already holds a collection", "Choose another --output")
