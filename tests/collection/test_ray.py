"""Collections on a Ray cluster. All tests share one cluster, which is started once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_runs import environment, kill_raylet, lines, records, rows, run, shared_cluster, stop_cluster
from waiting import CEILING, until, until_async, until_gone

import ludus
from ludus import UserError
from ludus.collection.engines import ray_engine
from ludus.runtime.ray_cluster import is_connected

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The cluster of this file, with one CPU on its head."""
    with shared_cluster() as found:
        yield found
    stop_cluster()


@pytest.fixture
def second_node(cluster: Any) -> Iterator[Any]:
    """Another node with one CPU."""
    node = cluster.add_node(num_cpus=1, resources={"second": 1})
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "waits"))
    monkeypatch.syspath_prepend(str(tmp_path / "waits"))
    return tmp_path / "waits"


def waiting(go: Path, count: int) -> list[dict[str, Any]]:
    """Rows whose verdict waits until a file is there."""
    return [{**row, "task_id": f"late-{n}"} for n, row in enumerate(rows(count, until=str(go)))]


def driver(cluster: Any, folder: Path, go: Path) -> tuple[list[str], dict[str, str]]:
    """`ludus collect` of 40 rows and of 20 that wait, and the variables of its process."""
    given = [*rows(40), *waiting(go, 20)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({**row, "marks": str(folder)}) + "\n" for row in given))
    command = [
        *(sys.executable, "-m", "ludus", "collect", str(folder), "--model", "scripted:ray_answers:respond"),
        *("--input", "rows.jsonl", "--output", "out", "--ray", cluster.address, "--resume", "--json"),
    ]
    return command, {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{folder}"}


def marks(folder: Path) -> list[int]:
    """The worker processes that wait."""
    return [int(path.suffix[1:]) for path in folder.glob("waiting.*")]


def clear_marks(folder: Path) -> None:
    for path in folder.glob("waiting.*"):
        path.unlink()


def test_two_nodes_one_killed_in_the_middle_of_5000_rollouts_lose_none_and_record_none_twice(
    cluster, second_node, folder, tmp_path
):
    go = tmp_path / "go"
    given = [*rows(4000), *waiting(go, 1000)]

    async def watch(collector: Any) -> None:
        await until_async(lambda: collector.progress.finished >= 1000)
        kill_raylet(second_node)
        await until_async(lambda: collector.engine.processes()["died"])  # until then its orphan plays on
        go.touch()

    result = run(folder, "out", input=given, concurrency=64, workers=2, ray=cluster.address, watch=watch)
    assert result.metrics["counts"] == {"dispatched": 5000, "completed": 5000, "failed": 0, "masked": 0}
    found = records(folder / "out")
    assert len(found) == 5000
    processes = {row["process"] for row in found}
    assert len(processes) >= 2
    until_gone(*processes)  # the orphan of the dead node too
    assert result.metrics["workers"]["died"] >= 1


def test_chaos_kills_a_node_and_spares_the_head(cluster, second_node, folder, tmp_path):
    both, go = tmp_path / "both", tmp_path / "go"

    async def watch(collector: Any) -> None:
        await until_async(lambda: len(marks(folder)) == 2)  # both nodes play: the second one will be there to be killed
        both.touch()
        await until_async(lambda: collector.engine.processes()["died"])  # until then its orphan plays on
        go.touch()

    given = [*({**row, "marks": str(folder)} for row in waiting(both, 64)), *rows(56), *waiting(go, 30)]
    given = [{**row, "task_id": f"t{number}"} for number, row in enumerate(given)]
    options = {"concurrency": 64, "workers": 2, "ray": cluster.address, "chaos": "seed=1,node_kill=2"}
    result = run(folder, "out", input=given, watch=watch, **options)
    assert result.metrics["chaos"] == {"faults": {"node_kill": 1}, "rollouts": 150, "problems": []}
    assert result.metrics["counts"]["completed"] == 150
    assert "node_kill killed 1 of 2 nodes: it spares the head's and the driver's" in result.warnings
    assert result.metrics["workers"]["died"] >= 1


def test_nodes_get_the_code_and_ludus_itself_through_the_runtime_environment(cluster, folder):
    result = run(folder, "out", input=rows(6), ray=cluster.address, workers=1)
    assert result.metrics["counts"]["completed"] == 6
    for row in records(folder / "out"):
        assert "/py_modules_files/" in row["place"]
        assert row["told"] == "a file beside the code"


def test_what_a_killed_worker_was_playing_is_played_again(cluster, second_node, folder, tmp_path):
    given = [*rows(10), *({**row, "task_id": "dies"} for row in rows(1, dies_unless=str(tmp_path / "died")))]
    result = run(folder, "out", input=given, repeats=3, concurrency=8, workers=2, ray=cluster.address)
    assert result.metrics["counts"] == {"dispatched": 33, "completed": 33, "failed": 0, "masked": 0}
    assert len(records(folder / "out")) == 33
    assert result.metrics["workers"] == {"count": 2, "died": 1}
    assert result.warnings == ["1 worker process died. Its rollouts were played again"]


def test_a_driver_that_is_killed_or_stopped_leaves_no_worker_and_another_one_resumes(cluster, folder, tmp_path):
    go = tmp_path / "go"
    command, environ = driver(cluster, folder, go)
    for how, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 130)):
        with (folder / "first.log").open("wb") as log:
            first = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
            until(lambda: (lines(folder / "out") >= 40 and marks(folder)) or first.poll() is not None)  # noqa: B023
            workers = marks(folder)
            assert first.poll() is None, (folder / "first.log").read_text()
            first.send_signal(how)
            assert first.wait() == code
        until_gone(*workers)
        said = (folder / "first.log").read_text()
        assert ("stopped: 40 of 60 rollouts are saved" in said) is (how == signal.SIGTERM)
        clear_marks(folder)
    go.touch()
    second = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=CEILING)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["counts"]["completed"] == 60
    assert len(records(folder / "out")) == 60


def test_workers_are_placed_by_the_resources_that_an_environment_declares(cluster, second_node, tmp_path, monkeypatch):
    folder = environment(tmp_path / "waits", "{cpus: 0.5, memory: 1MiB, resources: {second: 1}, sessions: 2}")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    result = run(folder, "out", input=rows(8), concurrency=4, ray=cluster.address)
    assert result.metrics["counts"]["completed"] == 8
    assert result.metrics["workers"] == {"count": 2, "died": 0}  # 4 rollouts at once, 2 in a worker
    assert len({row["process"] for row in records(folder / "out")}) == 1  # one `second` exists: the other never started


def test_a_run_says_what_it_waits_for_while_no_worker_has_started(cluster, folder, monkeypatch):
    monkeypatch.setattr(ray_engine, "SAY_EVERY", 0.2)
    said: list[str] = []

    async def watch(collector: Any) -> None:
        while not any("waiting for Ray" in each for each in said):
            said.extend(collector.progress.notices)
            await asyncio.sleep(0.05)
        cluster.add_node(num_cpus=1, resources={"late": 1})

    settings = {"worker.resources": {"late": 1}}
    given = {"model": "scripted:ray_answers:respond", "ray": cluster.address, "settings": settings}
    result = ludus.collect(str(folder), input=rows(4), watch=watch, **given)
    assert result.metrics["counts"]["completed"] == 4
    (told, *_) = [each for each in said if "waiting for Ray" in each]
    assert told.startswith("waiting for Ray to start 1 workers with 1 CPU, 1 late each: free are ")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1: "),
        ("somewhere", "is neither local, auto, HOST:PORT nor"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(cluster, folder, address, told):
    with pytest.raises(UserError, match=told) as found:
        run(folder, "out", input=rows(1), ray=address)
    assert "\n" not in str(found.value)


def test_nodes_get_declared_packages_and_variables(cluster, tmp_path, monkeypatch):
    package = tmp_path / "ray_extra-1-py3-none-any.whl"  # a folder with a setup.py would need setuptools from an index
    with zipfile.ZipFile(package, "w") as wheel:
        wheel.writestr("ray_extra.py", "WORD = 'installed'\n")
        wheel.writestr("ray_extra-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: ray-extra\nVersion: 1\n")
        wheel.writestr("ray_extra-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("ray_extra-1.dist-info/RECORD", "")
    folder = environment(tmp_path / "waits", f"{{packages: ['{package}']}}")
    source = (folder / "resources.py").read_text()
    told = 'told = __import__("ray_extra").WORD + os.environ["RAY_RUN_WORD"]'
    (folder / "resources.py").write_text(source.replace('told = (place / "told.txt").read_text()', told))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    runtime = {"env_vars": {"RAY_RUN_WORD": " too"}}
    run(folder, "out", input=rows(2), ray=cluster.address, workers=1, ray_env=runtime)
    assert {row["told"] for row in records(folder / "out")} == {"installed too"}


def test_a_local_cluster_starts_for_the_run_and_ends_with_it(cluster, folder):
    result = run(folder, "out", input=rows(20), ray="local", workers=2, concurrency=4)
    assert result.metrics["counts"]["completed"] == 20
    assert result.metrics["workers"] == {"count": 2, "died": 0}
    found = records(folder / "out")
    assert {row["place"] for row in found} == {str(folder)}  # nothing is copied
    until_gone(*{row["process"] for row in found})
    assert not is_connected()


def test_a_local_cluster_that_does_not_start_is_tried_again_and_then_told_in_one_line(cluster, folder, monkeypatch):
    def fails(**options: Any) -> None:
        raise RuntimeError("the node timed out\nwith more lines")

    monkeypatch.setattr("ray.init", fails)
    said: list[str] = []

    async def watch(collector: Any) -> None:
        collector.progress.notices = said
        await asyncio.Event().wait()

    with pytest.raises(UserError) as found:
        run(folder, "out", input=rows(1), ray="local", watch=watch)
    reason = "RuntimeError: the node timed out with more lines"
    assert str(found.value) == f"Ray did not start on this machine: {reason}. Use --workers instead, or try again"
    assert said == [f"Ray did not start: {reason}. Trying again"] * 2
