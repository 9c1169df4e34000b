"""`ng_collect_rollouts`: sends rows to running agents and writes the files that NeMo Gym's tools read.

| file | content |
| --- | --- |
| `X.jsonl` | the agents' results, with `_ng_task_index`, `_ng_rollout_index` and `agent_ref`, in completion order |
| `X_failures.jsonl` | failed attempts, with `_ng_failure_class`; never a reward |
| `X_materialized_inputs.jsonl` | every row as it is sent to its agent |
| `X_aggregate_metrics.json` | statistics for each agent and each task |
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ludus.collection.collection import Collection
from ludus.collection.collector import Collector
from ludus.collection.options import Options
from ludus.errors import Failure, UserError
from ludus.remote.http import connect
from ludus.rollout import Rollout
from ludus.runtime.encoding import encode, json_error
from ludus.serve.aggregate import aggregate
from ludus.store.drafts import draft_path, write_whole
from ludus.store.journal import Journal
from ludus.store.lines import Source
from ludus_nemo_gym.agent_metrics import Numbers, RequestBodies, agent_metrics
from ludus_nemo_gym.agent_servers import PlaceholderModel, RunningAgents, RunningServers, running_environment
from ludus_nemo_gym.head import TOKEN
from ludus_nemo_gym.materialize import ROLLOUT, TASK, Expansion, materialized

Row = dict[str, Any]
Key = tuple[int, int]
ATTEMPTS = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
DEFAULT_ATTEMPTS = 3
#: The failures of a server that has no metrics of its own.
_NO_METRICS = ("http_404", "http_405")
#: Failures without a reply, and the statuses of a request that may succeed later. NeMo Gym has one class for both.
_NOT_REACHED, _RETRIED_STATUSES = ("refused", "timeout"), (None, 429, 502, 503, 504)
#: The default number of rollouts in flight: as many connections as NeMo Gym opens to one server.
CONCURRENCY = 1024
#: The failures that are held back while earlier results may still be kept: more than there are rollouts in flight.
MOST_HELD = 2 * CONCURRENCY


@dataclass
class CollectOptions:
    """The options of one collection."""

    input: Path
    output: Path
    expansion: Expansion = field(default_factory=Expansion)
    concurrency: int = CONCURRENCY
    resume: bool = False
    aggregate: bool = True
    route: str = "/run"


class OutputFiles:
    """The paths of `X.jsonl` and of the files beside it."""

    def __init__(self, output: Path) -> None:
        self.rollouts = output
        self.failures, self.inputs, self.metrics = (
            output.with_name(f"{output.stem}_{name}")
            for name in ("failures.jsonl", "materialized_inputs.jsonl", "aggregate_metrics.json")
        )


class RemoteCollection:
    """One collection that running agents play. Call `prepare` once, then run `collection`.

    A collection that is not resumed begins with the lines `carried`.
    """

    def __init__(self, options: CollectOptions, running: RunningServers, carried: Sequence[bytes] = ()) -> None:
        self.options = options
        self.carried = carried
        self.files = OutputFiles(options.output)
        self._draft = draft_path(self.files.inputs)
        self.running = running
        self.attempts: Counter[Key] = Counter()
        self.done: set[Key] = set()
        self.collection: Collection | None = None
        self.notes: list[str] = []
        self._replaces = False
        self._held: list[bytes] = []
        self._stack = contextlib.ExitStack()
        self._agent = RunningAgents()
        self._rollouts: Journal
        self._failures: Journal

    def prepare(self) -> Collector | None:
        """Write the rows as they will be sent, open the files, and make the collector; None if nothing is left."""
        draft = self._materialize()
        self._rollouts, self._failures = (
            self._stack.enter_context(Journal(path)) for path in (self.files.rollouts, self.files.failures)
        )
        if self.options.resume and self.files.inputs.exists():
            self._check_same_rows(draft)
            self._restore()
        elif not self._rollouts.empty:
            self._replaces = True
        else:
            self._clear()
        if not self._replaces:
            draft.replace(self.files.inputs)
        rest = draft if self._replaces else self._remaining()
        if rest is None:
            return None
        environment, self._agent = running_environment(self.running.agents, self.options.route)
        options = Options(model=PlaceholderModel(self.running.head), input=rest, concurrency=self.options.concurrency)
        self.collection = Collection(environment, options)
        return self.collection.prepare(sink=self._write)

    def replace(self) -> None:
        """Remove an earlier collection of the same name, if one is still there.

        This waits for the first reward: a command that gets none, because its model cannot be reached, loses nothing.
        """
        if self._replaces:
            self._replaces = False
            self._clear()
            copy = draft_path(self.files.inputs)
            shutil.copyfile(self._draft, copy)  # the collection still reads the draft
            copy.replace(self.files.inputs)
            for line in self._held:
                self._failures.append(line)
            self._held.clear()

    def _clear(self) -> None:
        self._rollouts.clear()
        self._failures.clear()
        for line in self.carried:
            self._rollouts.append(line)
        self.files.metrics.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and delete an empty failures file."""
        self._stack.close()
        self._draft.unlink(missing_ok=True)
        failures = self.files.failures
        if failures.exists() and failures.stat().st_size == 0:
            failures.unlink()

    async def write_metrics(self) -> None:
        """Write the statistics of each agent over all of `X.jsonl`."""
        rows, bodies = Numbers(), RequestBodies(self.running.agents)
        for row in read_rollouts(self.files.rollouts):
            rows.add(row)
            bodies.add(row)
        metrics = [
            agent_metrics(name, played, await self._aggregated(name, bodies.take(name)) or aggregate(played))
            for name, played in rows.by_agent.items()
        ]
        write_whole(self.files.metrics, orjson.dumps(metrics, option=orjson.OPT_INDENT_2) + b"\n")

    async def _aggregated(self, name: str, body: bytes) -> Row | None:
        """The statistics that an agent's server computes; None if no server computes any."""
        url = self.running.agents.get(name)
        if url is None:
            return None
        async with connect(url, TOKEN) as client:
            try:
                metrics = client.checked(await client.post("/aggregate_metrics", body))
            except Failure as failure:
                if failure.kind not in _NO_METRICS:
                    self.notes.append(f"{name}: its server computed no metrics, so Ludus's are written: {failure}")
                return None
        return metrics if isinstance(metrics, dict) else None

    def _materialize(self) -> Path:
        """Write the rows as they will be sent into a draft file."""
        options, draft, count = self.options, self._draft, 0
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                for row in materialized(options.input, options.expansion, self.running.agents):
                    file.write(encode(row) + b"\n")
                    count += 1
        except OSError as error:
            cause = f"cannot write {self.files.inputs}: {error.strerror}"
            raise UserError(cause, "Choose another +output_jsonl_fpath") from error
        if count == 0:
            raise UserError(f"{options.input} holds no rows")
        return draft

    def _check_same_rows(self, draft: Path) -> None:
        """Raise if the rows differ from those that the earlier run sent."""
        with draft.open("rb") as new, self.files.inputs.open("rb") as old:
            same = all(line == other for line, other in itertools.zip_longest(new, old))
        if not same:
            hint = "Leave resume_from_cache out to start again, or choose another +output_jsonl_fpath"
            raise UserError(f"{self.files.inputs} holds other rows than {self.options.input} gives now", hint)

    def _restore(self) -> None:
        """Read which rollouts earlier runs finished, and how often they tried the others."""
        self.done = {_key(row) for row in read_rollouts(self.files.rollouts)}
        most = max_rollout_attempts()
        for row in read_rollouts(self.files.failures):
            key = _key(row)
            self.attempts[key] += 1
            if row.get("_ng_failure_terminal") or self.attempts[key] >= most:
                self.done.add(key)

    def _remaining(self) -> Path | None:
        """A file of the rows that are left; None if all are done."""
        if not self.done and not self.attempts:
            return self.files.inputs
        handle, name = tempfile.mkstemp(prefix="ludus-rest-", suffix=".jsonl")
        self._stack.callback(Path(name).unlink, missing_ok=True)
        count = 0
        with os.fdopen(handle, "wb") as file:
            for row in read_rollouts(self.files.inputs):
                key = _key(row)
                if key not in self.done:
                    tried = {"_ng_attempt_index": self.attempts[key]} if self.attempts[key] else {}
                    file.write(encode({**row, **tried}) + b"\n")
                    count += 1
        return Path(name) if count else None

    async def _write(self, rollout: Rollout) -> None:
        row, result = rollout.job.row, self._agent.take(rollout.rollout_id)
        body = self._agent.take_body(rollout.rollout_id)
        if rollout.error is None or len(self._held) >= MOST_HELD:
            self.replace()
        if result is not None and result.get("_ng_no_persist"):
            return
        stamps = {key: row[key] for key in (TASK, ROLLOUT, "_ng_attempt_index", "agent_ref") if key in row}
        if rollout.error is not None:
            failed = _failure(rollout.error, body, replied=result is not None)
            line = encode({**(result or row), **failed, **stamps})
            self._held.append(line) if self._replaces else self._failures.append(line)
        elif result is not None:
            self._rollouts.append(encode({**result, **stamps}))


def max_rollout_attempts() -> int:
    """How often a rollout is tried: NEMO_GYM_MAX_ROLLOUT_ATTEMPTS as a positive number, else 3."""
    with contextlib.suppress(ValueError):
        attempts = int(os.environ.get(ATTEMPTS, ""))
        if attempts > 0:
            return attempts
    return DEFAULT_ATTEMPTS


def _failure(error: Failure, body: str | None, *, replied: bool) -> Row:
    """The fields of a failed rollout. They overwrite any reward that the agent gave it."""
    fields: Row = {"_ng_failure_class": error.kind, "_ng_failure_stage": error.stage, "_ng_failure_cause": error.cause}
    digits = error.kind.removeprefix("http_")
    status = int(digits) if digits.isdecimal() else None
    if not replied and (status is not None or error.kind in _NOT_REACHED):
        fields["_ng_failure_class"] = "agent_request_failed" if status in _RETRIED_STATUSES else "agent_run_error"
        fields |= {"_ng_failure_type": error.kind, "_ng_failure_message": error.cause}
        fields |= {"_ng_failure_http_status": status} if status is not None else {}
        fields |= {"_ng_failure_response_body": body} if body is not None else {}
    return {**fields, "reward": None}


def _key(row: Row) -> Key:
    return row[TASK], row[ROLLOUT]


def read_rollouts(path: Path) -> Iterator[Row]:
    """The rows of a file that a collection wrote, with their indices."""
    with Source(path) as source:
        for number, line in source.lines:
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UserError(f"{path}:{number}: {json_error(error)}", "Remove the line") from error
            if not isinstance(row, dict) or not isinstance(row.get(TASK), int) or not isinstance(row.get(ROLLOUT), int):
                raise UserError(f"{path}:{number}: {TASK} or {ROLLOUT} is missing", "Leave resume_from_cache out")
            yield row
