"""The worker of a task dies, or there are several: every rollout is recorded once, with the reward it earned."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
from inspect_python import TASKS, inspect_python

import ludus
from ludus.model import Request
from ludus.response import Response, message, texts_of
from ludus.testing import needs_sandbox

pytestmark = pytest.mark.slow

DIES = TASKS.with_name("dying.py")
SPEC = "scripted:test_inspect_workers:repeats"


def repeats(request: Request) -> Response:
    """Says what it was asked to say, and is wrong about 5."""
    asked = texts_of(request.input[-1]).removeprefix("Say ")
    return Response.of(message("nothing" if asked == "5" else asked))


def test_a_worker_that_is_killed_costs_no_rollout_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    settings = {"resources.python": inspect_python(), "resources.args.marker": str(tmp_path / "killed")}
    run = tmp_path / "run"
    ludus.collect(f"inspect:{DIES}", model=SPEC, output=run, concurrency=2, settings=settings)
    ludus.collect(f"inspect:{DIES}", model=SPEC, output=run, concurrency=2, settings=settings, resume=True)
    failed = [json.loads(line) for line in (run / "failures.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in failed} == {"crash"}
    assert all("was killed by signal 9" in row["cause"] for row in failed)
    assert list((tmp_path / "tmp").glob("ludus-inspect-*")) == []
    rewards = {rollout.task_id: rollout.reward for rollout in ludus.load(run)}
    assert rewards == {**{str(number): 1.0 for number in range(5)}, "5": 0.0}


def test_several_processes_have_a_worker_each_and_leave_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TEST_RUN", str(tmp_path))
    settings = {"resources.python": inspect_python()}
    ludus.collect(f"inspect:{DIES}", model=SPEC, output=tmp_path / "run", repeats=4, workers=2, settings=settings)
    rollouts = list(ludus.load(tmp_path / "run"))
    assert Counter(rollout.reward for rollout in rollouts) == {1.0: 20, 0.0: 4}
    assert started_with(f"LUDUS_TEST_RUN={tmp_path}".encode()) == []


def started_with(variable: bytes) -> list[str]:
    """The processes of tasks that were started with a variable."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_task = b"/ludus_inspect/inside" in (place / "cmdline").read_bytes()
            found += [place.name] if is_task and variable in (place / "environ").read_bytes().split(b"\0") else []
    return found


@needs_sandbox()
def test_an_image_that_is_mapped_is_the_box_of_a_sample() -> None:
    settings = {"resources.python": inspect_python(), "resources.images": {"example/agent:1": "host"}}
    environment = ludus.Environment.load(f"inspect:{TASKS}@behaviours")
    environment.configure(settings)
    rows = [row for row in environment.rows().rows(0) if row["task_id"] == "box_image"]
    (rollout,) = ludus.collect(environment, model=SPEC, input=rows).rollouts
    assert rollout.reward == 1.0, rollout.error
