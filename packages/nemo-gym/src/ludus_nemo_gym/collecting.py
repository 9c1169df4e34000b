"""`ng_collect_rollouts`: rows in, verified rollouts out, in the files that NeMo Gym's tools read.

| file | content |
| --- | --- |
| `X.jsonl` | what agents answered, with `_ng_task_index`, `_ng_rollout_index` and `agent_ref`, as each rollout ends |
| `X_failures.jsonl` | failed attempts, with `_ng_failure_class`; never a reward |
| `X_materialized_inputs.jsonl` | every row as it was sent |
| `X_aggregate_metrics.json` | statistics for each agent and each task |
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ludus.collection.api import Collection, Options
from ludus.collection.collector import Collector
from ludus.errors import Failure, UserError
from ludus.remote.http import connect
from ludus.rollout import Rollout
from ludus.runtime.encoding import encode
from ludus.serve.aggregate import aggregate
from ludus.store.journal import Journal, write_whole
from ludus_nemo_gym.materialize import ROLLOUT, TASK, Expansion, materialized
from ludus_nemo_gym.running import TOKEN, Running, RunningAgents, Servers, agent_of, running_environment

Row = dict[str, Any]
Key = tuple[int, int]
ATTEMPTS = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
#: As many connections as the reference opens to one server.
AT_ONCE = 1024


@dataclass
class Wanted:
    """What is to be collected."""

    input: Path
    output: Path
    how: Expansion = field(default_factory=Expansion)
    at_once: int = AT_ONCE
    resume: bool = False
    aggregate: bool = True


class Files:
    """The files that stand beside `X.jsonl`."""

    def __init__(self, output: Path) -> None:
        self.rollouts = output
        self.failures, self.inputs, self.metrics = (
            output.with_name(f"{output.stem}_{name}")
            for name in ("failures.jsonl", "materialized_inputs.jsonl", "aggregate_metrics.json")
        )


class Gathering:
    """One collection over running agents: prepared, run once."""

    def __init__(self, wanted: Wanted, running: Running) -> None:
        self.wanted = wanted
        self.files = Files(wanted.output)
        self.running = running
        self.attempts: Counter[Key] = Counter()
        self.done: set[Key] = set()
        self.collection: Collection | None = None
        self._stack = contextlib.ExitStack()
        self._agent = RunningAgents()
        self._rollouts: Journal
        self._failures: Journal

    def prepare(self) -> Collector | None:
        """Write the rows as they will be sent, open the files, and say what is to be played; None where nothing is."""
        draft = self._materialize()
        self._rollouts, self._failures = (
            self._stack.enter_context(Journal(path)) for path in (self.files.rollouts, self.files.failures)
        )
        if self.wanted.resume and self.files.inputs.exists():
            self._compare(draft)
            self._restore()
        else:
            self._rollouts.clear()
            self._failures.clear()
            self.files.metrics.unlink(missing_ok=True)
        draft.replace(self.files.inputs)
        rest = self._rest()
        if rest is None:
            return None
        environment, self._agent = running_environment(self.running.agents)
        options = Options(model=Servers(self.running.head), input=rest, concurrency=self.wanted.at_once)
        self.collection = Collection(environment, options)
        return self.collection.prepare(sink=self._keep)

    def close(self) -> None:
        """Let go of the files; one for failures that nothing was written into goes."""
        self._stack.close()
        _draft_of(self.files.inputs).unlink(missing_ok=True)
        failures = self.files.failures
        if failures.exists() and failures.stat().st_size == 0:
            failures.unlink()

    async def write_metrics(self) -> None:
        """Statistics over everything that `X.jsonl` holds, by the agents that played it."""
        rows: dict[str, list[Row]] = {}
        for row in _read(self.files.rollouts):
            rows.setdefault(agent_of(row), []).append(_numbers(row))
        found = [{"agent_ref": {"name": name}, **await self._aggregated(name, played)} for name, played in rows.items()]
        write_whole(self.files.metrics, orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")

    async def _aggregated(self, name: str, rows: list[Row]) -> Row:
        """What an agent makes of its rollouts; where it cannot say, what we make of them."""
        url = self.running.agents.get(name)
        if url is not None:
            async with connect(url, TOKEN) as client:
                with contextlib.suppress(Failure):
                    told = client.checked(await client.post("/aggregate_metrics", encode({"verify_responses": rows})))
                    if isinstance(told, dict):
                        return told
        return aggregate(rows)

    def _materialize(self) -> Path:
        """The rows as they will be sent, in a file that is not yet in its place."""
        wanted, draft, count = self.wanted, _draft_of(self.files.inputs), 0
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                for row in materialized(wanted.input, wanted.how, self.running.agents):
                    file.write(encode(row) + b"\n")
                    count += 1
        except OSError as error:
            raise UserError(f"cannot write {draft}: {error.strerror}", "Choose another +output_jsonl_fpath") from error
        if count == 0:
            raise UserError(f"{wanted.input} holds no rows")
        return draft

    def _compare(self, draft: Path) -> None:
        """Refuse to continue with other rows than those that were begun with."""
        with draft.open("rb") as ours, self.files.inputs.open("rb") as theirs:
            same = all(one == other for one, other in itertools.zip_longest(ours, theirs))
        if not same:
            hint = "Leave resume_from_cache out to begin anew, or choose another +output_jsonl_fpath"
            raise UserError(f"{self.files.inputs} holds other rows than were named now", hint)

    def _restore(self) -> None:
        """What earlier sittings finished, and how often they tried the rest."""
        self.done = {_key(row) for row in _read(self.files.rollouts)}
        most = int(os.environ.get(ATTEMPTS) or 3)
        for row in _read(self.files.failures):
            key = _key(row)
            self.attempts[key] += 1
            if row.get("_ng_failure_terminal") or self.attempts[key] >= most:
                self.done.add(key)

    def _rest(self) -> Path | None:
        """The rows that are left, in a file; None where all are done."""
        if not self.done and not self.attempts:
            return self.files.inputs
        handle, name = tempfile.mkstemp(prefix="ludus-rest-", suffix=".jsonl")
        self._stack.callback(Path(name).unlink, missing_ok=True)
        count = 0
        with os.fdopen(handle, "wb") as file:
            for row in _read(self.files.inputs):
                key = _key(row)
                if key not in self.done:
                    tried = {"_ng_attempt_index": self.attempts[key]} if self.attempts[key] else {}
                    file.write(encode({**row, **tried}) + b"\n")
                    count += 1
        return Path(name) if count else None

    async def _keep(self, rollout: Rollout) -> None:
        row, told = rollout.job.row, self._agent.take(rollout.rollout_id)
        if told is not None and told.get("_ng_no_persist"):
            return
        ours = {key: row[key] for key in (TASK, ROLLOUT, "_ng_attempt_index", "agent_ref") if key in row}
        if rollout.error is not None:
            self._failures.append(encode({**(told or row), **_failure(rollout.error), **ours}))
        elif told is not None:
            self._rollouts.append(encode({**told, **ours}))


def _draft_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _failure(error: Failure) -> Row:
    """What the record of a failure says. A reward that an agent made up for it does not stay."""
    told = {"_ng_failure_class": error.kind, "_ng_failure_stage": error.stage, "_ng_failure_cause": error.cause}
    return {**told, "reward": None}


def _key(row: Row) -> Key:
    return row[TASK], row[ROLLOUT]


def _numbers(row: Row) -> Row:
    """What statistics need of a row."""
    numbers = {key: value for key, value in row.items() if isinstance(value, (bool, int, float))}
    response = row.get("response")
    return {**numbers, "response": {"usage": response.get("usage") if isinstance(response, dict) else None}}


def _read(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UserError(f"{path}:{number}: not JSON: {error}", "Remove the line") from error
            if not isinstance(row, dict) or not isinstance(row.get(TASK), int) or not isinstance(row.get(ROLLOUT), int):
                raise UserError(f"{path}:{number}: {TASK} or {ROLLOUT} is missing", "Leave resume_from_cache out")
            yield row
