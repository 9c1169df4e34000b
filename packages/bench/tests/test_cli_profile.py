"""`ludus profile` on the command line: tables for people, JSON for programs, files for the next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_rows import Done, ludus_command
from profiled_runs import collect


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: str | Path, cwd: Path) -> Done:
    return ludus_command(cwd, "profile", *map(str, arguments))


def test_a_profile_with_files_and_a_second_policy(tmp_path: Path) -> None:
    collect(tmp_path / "before", "1 10", "0 20", "crash", "0.5 odd", tasks=("a", "b"))
    collect(tmp_path / "after", "1 10", "1 20", tasks=("a", "b"))
    (tmp_path / "prices.yaml").write_text("m-1: {input: 0, output: 1000000}\n")
    files = ["--output", "out", "--filter", "0.1..0.9", "--prices", "prices.yaml"]
    done = run("before", *files, "--compare", "after", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["overall"]["counts"] == {"dispatched": 8, "completed": 4, "failed": 2, "masked": 2}
    assert found["subset"] == {"low": 0.1, "high": 0.9, "kept": 2, "too_hard": 0, "too_easy": 0, "unknown": 0}
    assert found["overall"]["cost"]["total"] == 60.0
    assert found["compared_with"]["overall"]["pass_rate"]["mean"] == 1.0
    assert found["comparison"]["passed_more_often"] == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "difficulty.jsonl",
        "profile.json",
        "subset.jsonl",
    ]
    stored = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert {**stored, "written": found["written"]} == found
    tables = run("before", *files, "--compare", "after", cwd=tmp_path).stdout
    for words in ("groups with a learning signal", "100.0%, 2 of 2", "0.500 (95 %", "subset: 2 tasks"):
        assert words in tables, tables
    assert "tasks that B passes: 2 more often, 0 less often, 0 as often" in tables


def test_an_environment_under_load(tmp_path: Path) -> None:
    arguments = ("example_session_state_mgmt", "--model", "scripted", "--sessions", "16")
    found = json.loads(run(*arguments, "--json", "--output", "out", cwd=tmp_path).stdout)
    assert found["counts"]["completed"] == 16
    assert found["tools"].keys() == {"increment_counter", "get_counter_value"}
    assert json.loads((tmp_path / "out" / "load.json").read_text()) == found
    tables = run(*arguments, cwd=tmp_path).stdout
    for words in ("sessions a second", "memory per session", "p99", "increment_counter"):
        assert words in tables


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "cannot read nothing"),
        (("run", "--filter", "0.1..0.9"), "--filter writes files. Add --output DIR"),
        (("run", "--filter", "1", "-o", "out"), "--filter 1 is not a range of pass rates"),
        (("run", "--plot", "gif", "-o", "out"), "Choose png or svg"),
        (("run", "--set", "a.b=1"), "Add --model scripted"),
        (("run", "--model", "scripted", "--filter", "0..1"), "--filter is for runs"),
        (("mcqa", "blackjack", "--model", "scripted"), "one environment, and 2 are named"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    collect(tmp_path / "run", "1")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_escape_codes_in_names_are_not_printed(tmp_path: Path) -> None:
    collect(tmp_path / "run", "1", "0", tasks=("evil\x1b[31m",))
    assert "\x1b" not in run("run", cwd=tmp_path).stdout
