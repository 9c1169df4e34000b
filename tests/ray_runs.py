"""Helpers of the tests of `--ray`: one cluster for all of them, and an environment whose rows say what to do."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import ludus
from ludus.collection.collection import Collection
from ludus.errors import install_command
from ludus.runtime.ray_cluster import OBJECT_STORE_BYTES, START_ATTEMPTS, START_SETTINGS, start_reason

#: Set by `make test-ray`: a cluster that does not come up is then a failure.
DEMANDED = "LUDUS_TEST_RAY"

RESOURCES = """
import asyncio
import os
import signal
from pathlib import Path

import ludus
from ludus import Resources, Response, Verdict


class Waits(Resources):
    class Task(ludus.Task):
        until: str | None = None
        dies_unless: str | None = None
        marks: str | None = None

    async def verify(self, task: Task, response: Response) -> Verdict:
        if task.dies_unless is not None and not Path(task.dies_unless).exists():
            Path(task.dies_unless).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if task.marks is not None and task.until is not None:
            Path(task.marks, f"waiting.{os.getpid()}").touch()
        while task.until is not None and not Path(task.until).exists():
            await asyncio.sleep(0.02)
        place = Path(__file__).parent
        told = (place / "told.txt").read_text()
        return Verdict(0.5, process=os.getpid(), place=str(place), told=told)
"""

MODEL = """
import asyncio

async def respond(request):
    await asyncio.sleep(0.01)
    return "x" * (request.seed % 10)
"""


def environment(folder: Path, worker: str = "{}") -> Path:
    """Write the environment and its model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resources.py").write_text(RESOURCES)
    (folder / "told.txt").write_text("a file beside the code")
    text = f"name: waits\nresources: resources.py:Waits\nagent: {{type: single_turn}}\nworker: {worker}\n"
    (folder / "environment.yaml").write_text(text)
    (folder / "ray_answers.py").write_text(MODEL)
    return folder


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    """Rows with the same fields."""
    return [{"responses_create_params": {"input": f"row {n}"}, "task_id": f"t{n}", **more} for n in range(count)]


def run(folder: Path, output: str, **options: Any) -> Collection:
    """Collect with the model of the folder."""
    return ludus.collect(str(folder), model="scripted:ray_answers:respond", output=folder / output, **options)


def records(folder: Path, name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
    """The rows of a journal. No rollout is there twice."""
    found = [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]
    assert len({row["rollout_id"] for row in found}) == len(found)
    return found


def lines(folder: Path) -> int:
    """How many rollouts the journal holds now."""
    journal = folder / "rollouts.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@functools.cache
def _started() -> Any:
    """The cluster of all tests, or why there is none."""
    for name, value in START_SETTINGS.items():
        os.environ.setdefault(name, value)
    from ray.cluster_utils import Cluster

    Path("/tmp/ray").mkdir(exist_ok=True)  # `Cluster` writes its address there, and Ray makes only its own folders
    reason = ""
    for _ in range(START_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix="lr-", dir="/tmp"))
        try:
            head = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "temp_dir": str(folder)}
            return Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False}), folder
        except Exception as error:
            reason = start_reason(folder) or str(error)
            shutil.rmtree(folder, ignore_errors=True)
    return reason, None


@contextmanager
def shared_cluster() -> Iterator[Any]:
    """The cluster: its head has one CPU. Where Ray is not installed or does not start, the test is skipped; it fails
    if `make test-ray` demands the cluster."""
    demanded = bool(os.environ.get(DEMANDED))
    try:
        import ray  # noqa: F401
    except ImportError:
        missing = f"ray is not installed: {install_command('ray')}"
        pytest.fail(missing) if demanded else pytest.skip(missing)
    cluster, folder = _started()
    if folder is None:
        why = f"Ray did not start: {cluster}"
        pytest.fail(why) if demanded else pytest.skip(why)
    yield cluster


def stop_cluster() -> None:
    """End the cluster, if it was started."""
    if _started.cache_info().currsize:
        cluster, folder = _started()
        if folder is not None:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
        _started.cache_clear()


def kill_raylet(node: Any) -> None:
    """Kill the process that makes a machine a node of the cluster. The actors of the node are orphans then."""
    for info in node.all_processes["raylet"]:
        os.kill(info.process.pid, signal.SIGKILL)
