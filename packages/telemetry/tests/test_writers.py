"""`--log-to`: charts that the real clients of three trackers write here, read back from their files."""

from __future__ import annotations

import http.server
import json
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ludus_telemetry import charts, writers
from waiting import until
from worker_runs import environment, rows, run

from ludus.errors import MissingExtra, UserError

Chart = dict[str, list[tuple[int, float]]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "acts"))
    return tmp_path / "acts"


def tensorboard_charts(folder: Path) -> Chart:
    """The scalars of the event files in a folder: records with a length, a checksum and an event."""
    from tensorboardX.proto.event_pb2 import Event

    found: Chart = {}
    for path in folder.rglob("events.out.tfevents.*"):
        data = path.read_bytes()
        while len(data) >= 8:
            (length,) = struct.unpack("<Q", data[:8])
            if len(data) < 12 + length + 4:  # a record that is being written
                break
            event, data = Event.FromString(data[12 : 12 + length]), data[12 + length + 4 :]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def mlflow_run(uri: str) -> tuple[Any, Chart]:
    """The one run of a store, and its metrics."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ludus")
    (stored,) = client.search_runs([experiment.experiment_id])
    history = {name: client.get_metric_history(stored.info.run_id, name) for name in stored.data.metrics}
    return stored, {name: [(each.step, each.value) for each in points] for name, points in history.items()}


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a file of Weights & Biases: blocks of 32 KiB that hold pieces with checksum, length and kind."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := -at % 32768) and left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if at + 7 + length > len(data):  # a piece that is being written
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            yield whole
            whole = b""


def wandb_charts(folder: Path) -> tuple[Chart, dict[str, Any]]:
    """The history and the settings in the file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    found, config = dict[str, list[tuple[int, float]]](), dict[str, Any]()
    for data in wandb_records(path.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("run"):
            config |= {each.key: json.loads(each.value_json) for each in record.run.config.update}
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            found.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    return found, config


def check(written: Chart, metrics: dict[str, Any]) -> None:
    """The last point of each chart is what metrics.json says."""
    last = {name: points[-1][1] for name, points in written.items()}
    counts = metrics["counts"]
    assert {points[-1][0] for name, points in written.items() if name == "rollouts/completed"} == {counts["dispatched"]}
    for outcome in ("completed", "failed", "masked"):
        assert last[f"rollouts/{outcome}"] == counts[outcome]
    assert last["failures/verify/crash"] == metrics["failures"]["verify/crash"]
    assert last["reward/mean"] == pytest.approx(metrics["reward"]["mean"], rel=1e-6)
    assert last["pass_rate"] == pytest.approx(metrics["pass@k"]["1"])
    assert last["rollouts_per_second"] > 0


@pytest.mark.slow
def test_tensorboard_event_files_hold_the_charts_over_time(folder, monkeypatch):
    pytest.importorskip("tensorboardX", reason="needs: pip install tensorboardX")
    monkeypatch.setattr(charts, "WRITE_EVERY", 0.01)
    place = folder / "out" / "tensorboard"
    watching = released_when(folder, lambda: bool(tensorboard_charts(place).get("rollouts/completed")))
    found = run(folder, "out", input=rows(6, "wait", "fail", "mask"), log_to="tensorboard", watch=watching)
    assert found.metrics["counts"]["failed"] == 1, "points were not written before the waiting rollout timed out"
    written = tensorboard_charts(place)
    check(written, found.metrics)
    steps = [step for step, _ in written["rollouts/completed"]]
    assert len(steps) > 1
    assert steps == sorted(steps)


def released_when(folder: Path, happened: Callable[[], bool]) -> Any:
    """A watcher that lets the waiting rollout go on as soon as something has been written."""

    async def watch(collector: Any) -> None:
        import asyncio

        await asyncio.to_thread(until, happened)
        (folder / "go").touch()

    return watch


@pytest.mark.slow
def test_mlflow_stores_the_charts_and_the_settings(folder, monkeypatch):
    pytest.importorskip("mlflow", reason="needs: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (folder / "store").as_uri()
    found = run(folder, "out", input=rows(6, "fail", "mask"), log_to=[f"mlflow:{uri}"])
    assert found.observer is not None
    assert found.observer.problems == []
    stored, written = mlflow_run(uri)
    check(written, found.metrics)
    assert stored.info.status == "FINISHED"
    assert stored.info.run_name == "out"
    assert stored.data.params["environment"] == "acts"


class SilentMlflow(http.server.BaseHTTPRequestHandler):
    """MLflow's server as far as the client asks when a run starts. It then never answers."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        started = {"run_id": "1", "run_uuid": "1", "experiment_id": "1", "status": "RUNNING", "artifact_uri": "x"}
        if "get-by-name" in self.path:
            answer: dict[str, Any] = {"experiment": {"experiment_id": "1", "name": "ludus"}}
        elif "runs/create" in self.path:
            answer = {"run": {"info": started, "data": {}}}
        elif b"metrics" in body:
            threading.Event().wait()
        else:
            answer = {}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def silent_mlflow() -> Iterator[str]:
    """The URL of a server that goes silent after the start of a run."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SilentMlflow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.socket.close()


@pytest.mark.slow
def test_a_collection_ends_although_its_mlflow_server_went_silent(folder, monkeypatch, silent_mlflow):
    pytest.importorskip("mlflow", reason="needs: pip install mlflow-skinny")
    monkeypatch.setattr(charts, "CLOSE_WITHIN", 0.5)
    found = run(folder, "out", input=rows(3), log_to=f"mlflow:{silent_mlflow}")
    assert found.metrics["counts"]["completed"] == 3
    assert found.observer is not None
    assert "no answer within 0.5 s" in found.observer.problems[0]


@pytest.mark.slow
def test_mlflow_that_cannot_be_opened_is_one_line_with_what_to_type(folder, monkeypatch):
    pytest.importorskip("mlflow", reason="needs: pip install mlflow-skinny")
    monkeypatch.setattr(writers, "OPEN_WITHIN", 0.5)
    with pytest.raises(UserError, match=r"no answer within 0.5 s. Name a server that runs: mlflow:http:") as refused:
        run(folder, "out", input=rows(1), log_to="mlflow:http://somebody:password@127.0.0.1:9")
    assert "password" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_wandb_writes_the_charts_and_the_settings_offline(folder, monkeypatch):
    pytest.importorskip("wandb", reason="needs: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    found = run(folder, "out", input=rows(6, "fail", "mask"), log_to="wandb:pilot")
    assert found.observer is not None
    assert found.observer.problems == []
    until(lambda: wandb_charts(folder)[0])  # finish() returns before the client's process has written its file
    written, config = wandb_charts(folder)
    check(written, found.metrics)
    assert config["environment"] == "acts"


class Breaking:
    """A tracker whose server goes away after the start."""

    def __init__(self, argument: str, facts: writers.RunFacts) -> None:
        self.closed = False

    def write(self, step: int, scalars: dict[str, float]) -> None:
        raise ConnectionError("the tracker is gone")

    def close(self, *, completed: bool) -> None:
        raise ConnectionError("still gone")


def test_a_tracker_that_breaks_is_reported_once_and_ends_no_collection(folder, monkeypatch):
    monkeypatch.setitem(writers.WRITERS, "breaking", Breaking)
    found = run(folder, "out", input=rows(3), log_to="breaking")
    assert found.metrics["counts"]["completed"] == 3
    assert found.observer is not None
    assert found.observer.problems == ["breaking: ConnectionError: the tracker is gone"]


def test_the_run_of_a_tracker_is_finished_even_if_its_last_values_were_refused(folder, monkeypatch):
    ended = list[bool]()

    class Refusing(Breaking):
        def close(self, *, completed: bool) -> None:
            ended.append(completed)

    monkeypatch.setitem(writers.WRITERS, "refusing", Refusing)
    found = run(folder, "out", input=rows(3), log_to="refusing")
    assert ended == [True]
    assert found.observer is not None
    assert found.observer.problems == ["refusing: ConnectionError: the tracker is gone"]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How the runs of the tracker `noting` were finished: whether they were complete."""
    found = list[bool]()

    class Noting(Breaking):
        def write(self, step: int, scalars: dict[str, float]) -> None:
            pass

        def close(self, *, completed: bool) -> None:
            found.append(completed)

    monkeypatch.setitem(writers.WRITERS, "noting", Noting)
    return found


class Silent(Breaking):
    """A tracker that never answers."""

    def write(self, step: int, scalars: dict[str, float]) -> None:
        threading.Event().wait()


def test_a_tracker_that_never_answers_delays_neither_the_run_nor_the_other_tracker(folder, monkeypatch, ended):
    monkeypatch.setattr(charts, "WRITE_EVERY", 0.01)
    monkeypatch.setattr(charts, "CLOSE_WITHIN", 0.5)
    monkeypatch.setitem(writers.WRITERS, "silent", Silent)
    found = run(folder, "out", input=rows(3), log_to=["silent", "noting"])
    assert found.metrics["counts"]["completed"] == 3
    assert found.observer is not None
    (said,) = found.observer.problems
    assert said.startswith("silent: TimeoutError: no answer within 0.5 s after the collection ended")
    until(lambda: ended == [True])


def test_a_collection_that_fails_ends_the_run_of_its_tracker_as_failed(folder, ended):
    (folder / "broken").touch()
    with pytest.raises((UserError, OSError)):
        run(folder, "out", input=rows(3), log_to="noting")
    assert ended == [False]


def test_an_unknown_tracker_is_refused_before_the_run(folder):
    with pytest.raises(UserError, match=r"there is no writer tensorbord. Did you mean tensorboard\?"):
        run(folder, "out", input=rows(3), log_to="tensorbord")
    assert not (folder / "out" / "rollouts.jsonl").exists() or not (folder / "out" / "rollouts.jsonl").read_bytes()


@pytest.fixture(params=[("wandb", "wandb"), ("mlflow", "mlflow-skinny"), ("tensorboard", "tensorboardX")])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tracker whose package is not installed."""
    for module in ("wandb", "mlflow", "tensorboardX"):
        monkeypatch.setitem(sys.modules, module, None)
    return request.param


def test_a_missing_package_is_one_line_with_the_command_that_installs_it(folder, missing):
    name, package = missing
    with pytest.raises(MissingExtra, match=rf"{package} is not installed. Install it with: pip install .*\[{name}\]"):
        run(folder, "out", input=rows(1), log_to=name)
