"""`ludus bench`: it measures real collections against a stub model and says what limits them."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ludus_bench.bench import Bench

from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.errors import UserError

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "example_session_state_mgmt"


def run_bench(
    *words: str, open_files: int | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    command = [sys.executable, "-m", "ludus", "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, cwd=folder)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The command of docs/scale.md, with --json."""
    folder = tmp_path_factory.mktemp("bench")
    (block,) = re.findall(r"```sh\nludus bench (.*?)\n```", (ROOT / "docs" / "scale.md").read_text(), re.DOTALL)
    return run_bench(*block.split(), "--json", folder=folder), folder


@pytest.mark.slow
def test_a_point_has_rates_times_cpu_memory_and_a_bottleneck(
    measured: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, folder = measured
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((folder / "bench.json").read_text())
    (point,) = found["points"]
    assert point["rollouts"] == 24
    assert point["failed"] == 0
    assert point["in_flight"] == 20
    assert point["calls_per_rollout"] == 2.0  # the tools, then the answer
    assert point["stages_s"]["tool"]["count"] == 24
    assert point["rollouts_per_second"] == pytest.approx(24 / point["seconds"], rel=0.01)
    assert point["rollout_s"]["p50"] <= point["rollout_s"]["p99"] * 1.1
    assert point["service_s"] + point["wait_s"] == pytest.approx(point["rollout_s"]["mean"], rel=0.01)
    assert point["model_delay_s"] == pytest.approx(0.02)
    assert point["cpu_s"]["collector"] > 0
    assert point["cpu_s"]["stub"] > 0
    assert point["memory_bytes"] > 0
    assert point["journal_bytes"] > 100
    assert point["http_bytes"] > 100
    assert point["bottleneck"]["advice"]


@pytest.mark.slow
def test_the_progress_says_what_is_started_and_how_far_it_is(
    measured: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = measured
    assert "20 in flight: starting 1 stub model server" in done.stderr
    assert "of 24 rollouts" in done.stderr


@pytest.mark.slow
def test_workers_and_a_stub_without_http_make_a_table_and_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["--in-flight", "16", "--rollouts", "16", "--workers", "2", "--no-http", "--delay", "0.001..0.002"]
    done = run_bench(ENVIRONMENT, *words, "--plot", str(tmp_path / "curve.png"))
    assert done.returncode == 0, done.stderr
    assert "rollouts/s" in done.stdout
    assert "first bottleneck at 16 in flight" in done.stdout
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_point_that_the_limit_on_open_files_forbids_is_left_out_with_the_option_that_helps() -> None:
    done = run_bench(ENVIRONMENT, "--in-flight", "1k", "--workers", "1", "--json", open_files=512)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["points"] == []
    assert "512 open files a process: add --workers 4" in found["left_out"][0]["reason"]


@pytest.mark.slow
def test_a_mistake_in_the_measured_process_is_one_line() -> None:
    done = run_bench(ENVIRONMENT, "--in-flight", "2", "--no-http", "--input", "/nowhere.jsonl")
    assert done.returncode == 2
    assert "/nowhere.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--in-flight", "0"], ["--in-flight", "1k,x"], ["--delay", "soon"], ["--plot", "a.gif"]]
)
def test_a_bad_option_is_refused_before_anything_is_measured(words: list[str]) -> None:
    from click.testing import CliRunner

    from ludus.cli import command_line

    done = CliRunner().invoke(command_line(), ["bench", ENVIRONMENT, *words])
    assert isinstance(done.exception, UserError)


def test_the_limit_on_open_files_is_for_each_worker_process() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not 0 < hard <= 2**21:
        pytest.skip("this system has no limit on open files to run into")

    def prepare(workers: int) -> None:
        options: dict[str, Any] = {"model": "http://127.0.0.1:9/v1#stub", "limit": 1, "workers": workers}
        Collection(ENVIRONMENT, Options(**options, repeats=hard + 1000, concurrency=hard + 1000)).prepare()

    with pytest.raises(UserError, match="open files"):
        prepare(1)
    prepare(2)


def test_the_number_in_flight_must_be_positive() -> None:
    with pytest.raises(UserError, match="at least 1"):
        Bench(ENVIRONMENT, in_flight=[])
