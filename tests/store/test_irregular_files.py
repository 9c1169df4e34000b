"""A FIFO, a device, a socket or a folder in place of a file of a run is one line, and never waited for."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
from viewed_runs import write_run

from ludus.store.files import Files
from ludus.view.places import find_runs


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(path.parent)  # the address of a socket is short
        try:
            listening.bind(path.name)
        finally:
            os.chdir(before)


IRREGULAR: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": bind,
    "Is a directory": Path.mkdir,
}
COMMANDS = {
    "show": "show RUN",
    "profile": "profile RUN",
    "verify": "verify RUN --env example_session_state_mgmt --output OUT",
    "recall": "recall RUN --env example_session_state_mgmt",
    "compare": "compare RUN RUN/../run",
    "export": "data export RUN --to sft --output OUT",
    "view": "view RUN --export OUT",
    "replay": "collect example_session_state_mgmt --model replay:RUN --output OUT",
    "resume": "collect example_session_state_mgmt --resume --force --output RUN",
}


def ludus(command: str, run: Path) -> subprocess.CompletedProcess[str]:
    words = COMMANDS[command].replace("RUN", str(run)).replace("OUT", str(run.parent / f"{command}.html")).split()
    return forked.run([*forked.START, *words], capture_output=True, text=True)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", tasks=2, repeats=1)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_what_stands_in_place_of_the_rollouts(run: Path, command: str):
    for kind, make in IRREGULAR.items():
        journal = run / "rollouts.jsonl"
        shutil.rmtree(journal) if journal.is_dir() else journal.unlink()
        make(journal)
        ended = ludus(command, run)
        shown = ended.stdout + ended.stderr
        assert ended.returncode == 2, shown
        assert "rollouts.jsonl" in shown
        assert kind in shown
        assert "bug" not in shown


@pytest.mark.parametrize("kind", IRREGULAR)
def test_a_broken_run_beside_others_is_shown_without_rollouts(run: Path, kind: str):
    (run / "failures.jsonl").unlink()
    IRREGULAR[kind](run / "failures.jsonl")
    assert [found.path for found in find_runs([run.parent])] == [run]


@pytest.mark.parametrize("kind", IRREGULAR)
def test_an_irregular_run_json_is_no_description(run: Path, kind: str):
    (run / "run.json").unlink()
    IRREGULAR[kind](run / "run.json")
    assert Files.of(run).described() == {}
    assert ludus("profile", run).returncode == 0


@pytest.mark.parametrize("depth", [500, 50_000])
def test_a_run_json_that_is_nested_deeply_is_no_description(run: Path, depth: int):
    (run / "run.json").write_text('{"identity":' * depth + "1" + "}" * depth)
    assert Files.of(run).described() == {}
    for command in ("show", "profile", "view"):
        assert ludus(command, run).returncode == 0
