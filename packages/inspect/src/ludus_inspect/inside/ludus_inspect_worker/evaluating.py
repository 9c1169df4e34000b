"""One eval of Inspect that runs as long as the worker: its task is loaded once, its samples come one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_async, task_with
from inspect_ai.hooks import Hooks, SampleScoring, hooks
from inspect_ai.log import EvalSample
from inspect_ai.scorer import Score

from .boxes import install_sandboxes
from .channel import Message, WorkerChannel
from .models import install_models
from .private import active_samples, first_scorer, init_display_type, load_tasks, sample_active, tasks_named
from .samples import SampleAttempt, SampleFeed, plain

_LIMITS = ("message_limit", "token_limit", "time_limit", "turn_limit", "working_limit")
_MOST_SAMPLES = 1_000_000  # how many are played at once is not decided here


class NoSuchTask(Exception):
    """The package or the file has no such task."""


class RunningEval:
    """The task of a worker, and the samples that it plays."""

    def __init__(self, channel: WorkerChannel, setup: Message) -> None:
        self._channel, self._setup = channel, setup
        self._feed = SampleFeed(self._done)
        self._first_scorer = ""
        self._policy = install_models(channel, self._feed)
        install_sandboxes(channel, self._feed)
        _install_hook(channel, self._feed)
        init_display_type("none")

    def load(self) -> Task:
        """Make the task that the setup names."""
        random.seed(0)  # tasks that draw samples draw the same ones for rows and for playing
        spec, args = self._setup["task"], self._setup["args"]
        if not self._setup["file"] and spec not in (known := tasks_named()):
            package = spec.partition("/")[0]
            own = [name for name in known if name.startswith(f"{package}/")]
            raise NoSuchTask(" ".join(own))
        tasks = load_tasks([spec], args)
        if len(tasks) != 1:
            raise NoSuchTask(" ".join(str(task.name) for task in tasks))
        return tasks[0]

    async def run(self, task: Task, folder: Path) -> str:
        """Play samples until the process is told to end. Returns why the eval ended by itself."""
        self._feed.know(task)
        self._first_scorer = first_scorer(task)
        limits = {name: self._setup[name] for name in _LIMITS if self._setup.get(name) is not None}
        fed = task_with(task, dataset=self._feed, model=self._policy, epochs=1, name=task.name)
        self._channel.note(op="ready", samples=len(task.dataset) if hasattr(task.dataset, "__len__") else 0)
        logs = await eval_async(
            fed,
            model=self._policy,
            log_dir=str(folder),
            log_samples=False,
            log_realtime=False,
            log_model_api=False,
            log_level="warning",
            fail_on_error=False,
            score_display=False,
            max_samples=_MOST_SAMPLES,
            max_sandboxes=_MOST_SAMPLES,
            acp_server=False,
            ctl_server=False,
            **limits,
        )
        error = logs[0].error if logs else None
        return error.message if error is not None else ""

    def hear(self, message: Message) -> None:
        """A note of the other end: play a sample, or cancel one."""
        number = message["job"]
        if message["op"] == "cancel":
            self._cancel(number)
            return
        try:
            self._feed.begin(number, message["sample"], message["digest"], message["repeat"])
        except KeyError:
            self._channel.note(op="unknown", job=number)

    def _cancel(self, number: int) -> None:
        job = self._feed.job(number)
        for active in active_samples():
            if job is not None and (str(active.sample.id), active.epoch) == (str(job.sample.id), job.epoch):
                active.interrupt("error")

    def _done(self, job: SampleAttempt, sample: EvalSample | None) -> None:
        self._channel.note(op="done", job=job.number, first=self._first_scorer, **_result(sample))


def _result(sample: EvalSample | None) -> dict[str, Any]:
    """How an attempt ended, as JSON."""
    if sample is None:
        return {"lost": True}
    scored = any(getattr(event, "name", None) == "scorers" for event in sample.events if event.event == "span_begin")
    error = sample.error
    return {
        "scores": {name: _score(score) for name, score in (sample.scores or {}).items()},
        "error": {"text": error.message, "traceback": error.traceback} if error is not None else None,
        "limit": {"type": sample.limit.type, "limit": sample.limit.limit} if sample.limit is not None else None,
        "scored": scored,
        "stop": sample.output.stop_reason if sample.output.choices else None,
        "answer": sample.output.completion if sample.output.choices else "",
    }


def _score(score: Score) -> dict[str, Any]:
    fields = {"value": score.value, "answer": score.answer, "explanation": score.explanation, "reason": score.reason}
    return {name: plain(value) for name, value in fields.items() if value is not None}


def _install_hook(channel: WorkerChannel, feed: SampleFeed) -> None:
    """Tell the other end when the scorers of a sample begin."""

    @hooks(name="ludus", description="Tells Ludus when a sample is scored")
    class Telling(Hooks):
        async def on_sample_scoring(self, data: SampleScoring) -> None:
            active = sample_active()
            job = feed.job_of(active.sample.id, active.epoch) if active is not None else None
            if job is not None:
                channel.note(op="scoring", job=job.number)
