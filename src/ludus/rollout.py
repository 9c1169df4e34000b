"""Rollouts: the record of one attempt at a task."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.dialects.chat import to_chat
from ludus.errors import Failure, UserError
from ludus.outcome import UNREWARDED, Outcome, Verdict
from ludus.record import origin_of, read_timings, read_tool_errors, read_verdict, record_row, task_row
from ludus.response import Response, encoded_items
from ludus.runtime.encoding import encode
from ludus.runtime.failure_kinds import kind_of
from ludus.task import Task
from ludus.thread import MAIN, TRAINED, Thread, ThreadKind, read_threads
from ludus.tokens import Sequence, sequences


@dataclass(slots=True)
class Job:
    """One attempt to make: which repeat of which task, and its seed.

    `origin` holds the `ORIGIN` fields of the record, if this rollout branches from another. `turns` are the saved turns
    of a rollout that was interrupted, as lines of JSON.
    """

    rollout_id: str
    task_id: str
    repeat: int
    task: Task
    row: dict[str, Any]
    attempt: int = 1
    seed: int = 0
    environment: str = ""
    origin: dict[str, Any] | None = None
    turns: bytes = b""


def rollout_id(task_id: str, repeat: int) -> str:
    """The name of a repeat of a task: the same for every attempt and after a resume."""
    return f"{task_id}-{repeat}"


@dataclass(slots=True)
class Rollout:
    """One attempt: what was asked, everything that happened, and how it ended.

    `reward` is None unless a verifier returned one; `error` says why it failed, or was ended early. `calls` holds, for
    each model call, the number of its items and, if known, its tokens. A call marked `given` is one of the
    parent rollout of a branch. `response.tools` are the tools that the model was offered; a call with other tools lists
    them as its `tools`. `tool_errors` counts the exceptions of tools: `tool`, `exception`, `where` and `count`.
    `threads` are the conversations beside the main one, which `response` and `calls` hold.
    `step_times` says when each step began, if the run was traced. `steps` holds stage, seconds since the start and
    seconds of each step; the record has them as `steps` of its `timings`.
    """

    job: Job
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    tool_errors: list[dict[str, Any]] = field(default_factory=list)
    outcome: Outcome = Outcome.FAILED
    verdict: Verdict | None = None
    error: Failure | None = None
    stop_reason: str | None = None
    response: Response | None = None
    receipt: str | None = None
    step_times: dict[str, Any] | None = None
    steps: list[tuple[str, float, float]] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)

    @property
    def rollout_id(self) -> str:
        """Which repeat of which task this is."""
        return self.job.rollout_id

    @property
    def task_id(self) -> str:
        """The name of the task; the same for all of its repeats."""
        return self.job.task_id

    @property
    def task(self) -> Task:
        """The task that was attempted."""
        return self.job.task

    @property
    def reward(self) -> float | None:
        """The verifier's reward, or None without a verdict."""
        return self.verdict.reward if self.verdict is not None else None

    def judge(self, verdict: Verdict, mask: str | None = None) -> None:
        """Complete this rollout. `mask` is a reason not to train on it, in addition to the verifier's."""
        if mask is None and self.response is not None:
            mask = self.response.unusable(self.calls)
        if mask is not None:
            verdict.mask = verdict.mask or mask
        self.verdict = verdict
        self.outcome = Outcome.MASKED if verdict.mask else Outcome.COMPLETED

    def fail(self, error: Failure) -> None:
        """Make this a rollout without a reward. Only the first failure is kept: it caused the others."""
        if self.error is None:
            self.outcome = Outcome.ENDED_EARLY if kind_of(error.kind).ends_early else Outcome.FAILED
            self.error, self.verdict = error, None

    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation in the format of Chat Completions: the prompt, the answers and the tool outputs.

        What Chat Completions cannot hold is left out. `task.input` and `response.output` hold everything.
        """
        messages: list[dict[str, Any]] = self._chat()["messages"]
        return messages

    def tools(self) -> list[dict[str, Any]]:
        """The tools that the model was offered, in the format of Chat Completions."""
        tools: list[dict[str, Any]] = self._chat().get("tools") or []
        return tools

    def _chat(self) -> dict[str, Any]:
        params, response = self.task.responses_create_params, self.response
        items = [*self.task.input, *(response.output if response is not None else ())]
        tools = response.tools if response is not None else params.get("tools")
        return to_chat(items, {"instructions": params.get("instructions"), "tools": tools})

    def sequences(self, kinds: Collection[ThreadKind] = TRAINED) -> Iterator[Sequence]:
        """Token sequences to train on, with loss masks. Raises a UserError if the token ids of a call are missing.

        Those of the main thread come first. Side threads are left out, unless `kinds` has them.
        """
        if missing := self._calls_without_tokens():
            cause = f"rollout {self.rollout_id} has no token ids for model call {missing}"
            raise UserError(cause, "Collect with --tokens and a model that reports them (see docs/models.md)")
        threads: list[tuple[str, ThreadKind, list[dict[str, Any]]]] = [(MAIN, "main", self.calls)]
        threads += [(thread.name, thread.kind, thread.calls) for thread in self.threads]
        return (
            sequence
            for name, kind, calls in threads
            for sequence in sequences((call for call in calls if "prefix" in call), name, kind)
            if sequence.kind in kinds
        )

    def reward_of(self, thread: str) -> float | None:
        """The reward of a thread: its own, if the verdict has one, else that of the rollout."""
        return self.verdict.thread_rewards.get(thread, self.verdict.reward) if self.verdict is not None else None

    @property
    def trained_calls(self) -> list[dict[str, Any]]:
        """The model calls with tokens that `sequences` yields, in its order."""
        calls = [self.calls, *(thread.calls for thread in self.threads if thread.kind in TRAINED)]
        return [call for thread in calls for call in thread if "prefix" in call]

    def require_tokens(self) -> None:
        """Mask this rollout if the token ids of any of its model calls are missing. They are never guessed."""
        if self.verdict is not None and (missing := self._calls_without_tokens()):
            self.outcome = Outcome.MASKED
            self.verdict.mask = f"no token ids for model call {missing}"

    def _calls_without_tokens(self) -> str:
        """The numbers of the calls whose token ids are missing; at most five.

        A call without items (the context was full) needs none, unless no call has items.
        """
        calls = [(str(number), call) for number, call in enumerate(self.calls, start=1) if not call.get("given")]
        missing = [number for number, call in calls if "prefix" not in call and call["items"]]
        for thread in self.threads:
            if thread.kind in TRAINED and not all("prefix" in call or not call["items"] for call in thread.calls):
                missing.append(f"of thread {thread.name}")
        return ", ".join(missing[:5]) or ("" if any("prefix" in call for _, call in calls) else "1")

    def to_row(self) -> dict[str, Any]:
        """The rollout as one JSON object: a row of `rollouts.jsonl`, or of `failures.jsonl` if it failed."""
        job, verdict, error = self.job, self.verdict, self.error
        head: dict[str, Any] = {
            "rollout_id": job.rollout_id,
            "task_id": job.task_id,
            "repeat": job.repeat,
            "attempt": job.attempt,
            "outcome": self.outcome,
        }
        rest: dict[str, Any] = {"stop_reason": self.stop_reason, "rollout_seed": job.seed}
        if self.receipt is not None and verdict is not None:
            rest["receipt"] = self.receipt
        if job.origin is not None:
            rest |= job.origin
        rest["response"] = self._response_row()
        rest["usage"] = self.usage
        rest["timings"] = {**self.timings, "steps": [*map(list, self.steps)]} if self.steps else self.timings
        rest["model_calls"] = self.calls
        if self.threads:
            rest["threads"] = [thread.to_row() for thread in self.threads]
        if self.tool_errors:
            rest["tool_errors"] = self.tool_errors
        if self.step_times is not None:
            rest["step_times"] = self.step_times
        asked = {"responses_create_params": self._request()}
        if error is not None:  # the prompt is enough: the dataset holds the task
            return record_row(head, job.environment, asked, error, rest)
        return record_row(head, job.environment, {**asked, **job.row} if verdict is not None else {}, verdict, rest)

    def _request(self) -> Any:
        """What the model was asked. A row in the format of another tool has it only as a task."""
        return self.job.row.get("responses_create_params") or self.job.task.responses_create_params

    def encode(self) -> bytes:
        """The row as JSON; items that were sent in a request are not encoded again."""
        return encode(self.to_row())

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Rollout:
        """Read a stored row back. Its task is not checked, and is no instance of the environment's `Task`."""
        fields = task_row(row, ours=True)
        reference = row.get("agent_ref")  # an input row may hold any value here
        job = Job(
            row["rollout_id"],
            row["task_id"],
            row["repeat"],
            Task.unchecked(fields),
            fields,
            row.get("attempt", 1),
            row.get("rollout_seed", 0),
            reference.get("name", "") if isinstance(reference, dict) else "",
            origin_of(row),
        )
        rollout = cls(job, outcome=Outcome(row["outcome"]), stop_reason=row.get("stop_reason"))
        rollout.response = Response(row["response"]) if row.get("response") else None
        rollout.threads = read_threads(row)
        if rollout.response is not None:
            rollout.response.threads = rollout.threads
        rollout.usage = row.get("usage") or {}
        rollout.timings, rollout.steps = read_timings(row)
        rollout.calls, rollout.tool_errors = row.get("model_calls") or [], read_tool_errors(row)
        rollout.receipt, rollout.step_times = row.get("receipt"), row.get("step_times")
        if rollout.outcome in UNREWARDED:
            rollout.error = Failure(row["kind"], row["cause"], stage=row["stage"], where=row.get("where"))
        else:
            rollout.verdict = read_verdict(row, row.get("verdict_fields") or ())
        return rollout

    def _response_row(self) -> dict[str, Any] | None:
        if self.response is None or (self.error is not None and not self.response.output):
            return None
        return {**self.response.data, "output": encoded_items(self.response.output)}
