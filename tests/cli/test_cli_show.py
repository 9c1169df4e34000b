"""`ludus show` prints rollouts, and control characters in them never reach the terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

from ludus.cli.screen import clean, safe_json

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnp [bold red]plain[/bold red] :smile: \r over"
SCRIPT = """
- when: apples
  turns:
    - {reasoning: I need the price, call: look_up_price, arguments: {item: apple}}
    - They cost 6.
- when: pears
  turns: [{error: {kind: http_500, cause: the server is on fire}}]
- turns: [I do not know.]
"""


def ludus(*arguments: str, cwd: Path, columns: int = 80, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    environment |= {"COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, "-m", "ludus", *arguments]
    return forked.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=300, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection in `run` (four completed, one failed) and the same in `one.jsonl`."""
    folder = tmp_path_factory.mktemp("show")
    ludus("new", "shop", cwd=folder)
    (folder / "script.yaml").write_text(SCRIPT)
    for output in ("run", "one.jsonl"):
        done = ludus("collect", "./shop", "--model", "scripted:script.yaml", "--output", output, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def row(**fields: Any) -> dict[str, Any]:
    return {
        "rollout_id": "t-0",
        "task_id": "t",
        "repeat": 0,
        "attempt": 1,
        "outcome": "completed",
        "reward": 0.5,
        "responses_create_params": {"input": [{"role": "user", "content": "Say something."}]},
        "response": {"output": [{"type": "message", "role": "assistant", "content": "Something."}]},
        **fields,
    }


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


@pytest.mark.parametrize("name", ["run", "run/rollouts.jsonl", "one.jsonl"])
def test_the_list_counts_failed_rollouts(run: Path, name: str):
    done = ludus("show", name, cwd=run, columns=160)
    assert done.returncode == 0, done.stderr
    ids = [each["rollout_id"] for each in rows_of(run / "run" / "rollouts.jsonl")]
    assert len(ids) == 4
    assert all(each in done.stdout for each in ids)
    assert done.stdout.count("What do") == 4
    assert "1 failed: add --failed" in done.stdout


@pytest.mark.parametrize("name", ["run", "run/rollouts.jsonl", "one.jsonl"])
def test_failed_attempts_are_listed_with_stage_kind_and_cause(run: Path, name: str):
    done = ludus("show", name, "--failed", cwd=run, columns=160)
    assert "model: http_500" in done.stdout
    assert "the server is on fire" in done.stdout
    shown = ludus("show", name, "1", "--failed", cwd=run)
    assert "failed in model: http_500\n  the server is on fire" in shown.stdout


@pytest.mark.parametrize("columns", [50, 60, 99, 100, 200])
def test_the_table_fits_the_terminal(run: Path, columns: int):
    lines = ludus("show", "run", cwd=run, columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) == 7  # a heading, a rule, four rollouts, the failures: no cell wrapped
    if columns >= 60:
        assert all("completed" in line and "What do" in line for line in lines[2:6])


def test_one_rollout_is_shown_in_full(run: Path):
    rows = rows_of(run / "run" / "rollouts.jsonl")
    number = next(index for index, each in enumerate(rows, start=1) if each["reward"] == 1)
    by_number = ludus("show", "run", str(number), cwd=run)
    assert by_number.returncode == 0, by_number.stderr
    lines = by_number.stdout.splitlines()
    wanted = ["user", "reasoning", "  I need the price", "call look_up_price", '  {"item": "apple"}', "output"]
    wanted += ['  {"price": 2}', "assistant", "  They cost 6.", "completed, reward 1", "  answer: 6", "task", "time"]
    assert [line for line in lines if line in wanted] == wanted
    assert any(line.split() == ["expected_total", "6"] for line in lines)
    assert any(line.split() == ["model", "scripted:script.yaml"] for line in lines)
    name = rows[number - 1]["rollout_id"]
    assert ludus("show", "run", name, cwd=run).stdout == by_number.stdout
    assert ludus("show", "run", "--id", name, cwd=run).stdout == by_number.stdout


def test_a_failed_rollout_is_found_by_its_id_without_the_failed_flag(run: Path):
    name = rows_of(run / "run" / "failures.jsonl")[-1]["rollout_id"]
    assert "failed in model" in ludus("show", "run", name, cwd=run).stdout


def test_json_prints_the_recorded_rows(run: Path):
    listed = json.loads(ludus("show", "run", "--json", cwd=run).stdout)
    rows = rows_of(run / "run" / "rollouts.jsonl")
    assert [each["rollout_id"] for each in listed] == [each["rollout_id"] for each in rows]
    assert json.loads(ludus("show", "run", "2", "--json", cwd=run).stdout) == rows[1]


def test_colour_is_printed_only_on_a_terminal(run: Path):
    assert "\x1b" not in ludus("show", "run", "1", cwd=run).stdout
    assert "\x1b[1;34muser\x1b[0m" in ludus("show", "run", "1", cwd=run, FORCE_COLOR="1").stdout


def test_a_long_list_is_cut_and_names_the_limit_that_shows_all(tmp_path: Path):
    written(tmp_path / "many.jsonl", *(row(rollout_id=f"t{number}-0") for number in range(45)))
    shown = ludus("show", "many.jsonl", cwd=tmp_path, columns=120).stdout
    assert "t19-0" in shown
    assert "t20-0" not in shown
    assert "25 more: list them with --limit 45" in shown
    assert "t44-0" in ludus("show", "many.jsonl", "--limit", "45", cwd=tmp_path, columns=120).stdout


def test_control_characters_of_a_rollout_do_not_reach_the_terminal(tmp_path: Path):
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": HOSTILE}]},
        {"type": "function_call", "name": HOSTILE, "call_id": "c", "arguments": HOSTILE},
        {"type": "function_call", "name": "f", "call_id": "d", "arguments": json.dumps({HOSTILE: HOSTILE})},
        {"type": "function_call_output", "call_id": "c", "output": HOSTILE},
        {"type": "message", "role": HOSTILE, "content": [{"type": "output_text", "text": HOSTILE}]},
        {"type": HOSTILE, "what": HOSTILE},
    ]
    hostile = row(
        rollout_id=HOSTILE,
        stop_reason=HOSTILE,
        responses_create_params={"input": HOSTILE, "tools": [{"name": HOSTILE}]},
        response={"output": items, "model": HOSTILE},
        verdict_fields=["answer"],
        answer=HOSTILE,
        timings={HOSTILE: 1.0},
        usage={HOSTILE: 1},
        **{HOSTILE: HOSTILE},
    )
    failed = row(outcome="failed", stage=HOSTILE, kind=HOSTILE, cause=HOSTILE, where=HOSTILE)
    written(tmp_path / "h.jsonl", hostile, failed)
    for arguments in ((), ("1",), ("2",), ("--json",), ("1", "--json")):
        for columns in (60, 200):
            done = ludus("show", "h.jsonl", *arguments, cwd=tmp_path, columns=columns)
            assert done.returncode == 0, done.stderr
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.stdout)
    shown = ludus("show", "h.jsonl", "1", cwd=tmp_path).stdout
    assert "␛[2J␛]0;owned␇" in shown
    assert "[bold red]plain[/bold red] :smile:" in shown
    coloured = ludus("show", "h.jsonl", "1", cwd=tmp_path, FORCE_COLOR="1").stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).count("\x1b") == 0
    assert "\x1b[2J" not in coloured


@pytest.mark.parametrize("columns", [30, 49])
def test_a_very_narrow_terminal_gets_lines_instead_of_a_table(run: Path, columns: int):
    listed = ludus("show", "run", cwd=run, columns=columns).stdout.splitlines()
    assert listed[0] == "1  completed, reward 1, completed"
    assert listed[1].startswith("  What do")
    assert listed[-1] == "1 failed: add --failed"
    failed = ludus("show", "run", "--failed", cwd=run, columns=columns).stdout.splitlines()
    assert failed == ["1  failed, model: http_500", "  the server is on fire"]


@pytest.mark.parametrize(
    "odd", [None, 7, "text", [], [1, None], [[1]], [{"a": 1}], {}, {"input": 5, "tools": 3, "output": [4]}]
)
def test_fields_of_unexpected_types_are_shown_without_an_error(tmp_path: Path, odd: Any):
    names = ["rollout_id", "reward", "stop_reason", "responses_create_params", "response", "usage", "timings"]
    names += ["model_calls", "agent_ref", "verdict_fields", "mask", "reward_components", "task_id"]
    written(tmp_path / "odd.jsonl", row(**dict.fromkeys(names, odd)), row(outcome=odd), {"outcome": "failed"})
    for arguments in ((), ("1",), ("2",), ("3",)):
        done = ludus("show", "odd.jsonl", *arguments, cwd=tmp_path, columns=120)
        assert done.returncode == 0, done.stderr


def test_items_of_other_providers_are_shown(tmp_path: Path):
    asked = {
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "See:"}, {"type": "input_image"}]}],
    }
    items = [
        {"type": "reasoning", "summary": [], "encrypted_content": "xyz"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I would rather not."}]},
        {"type": "web_search_call", "query": "cats"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "parts"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{not json"},
        {"type": "function_call", "call_id": "c", "name": "deep", "arguments": "[" * 100_000},
    ]
    nemo = {"responses_create_params": asked, "response": {"output": items, "usage": {"input_tokens": 5}}, "reward": 1}
    written(tmp_path / "nemo.jsonl", nemo)
    shown = ludus("show", "nemo.jsonl", "1", cwd=tmp_path).stdout
    for part in (
        "Be brief.",
        "See:[input_image]",
        "(encrypted)",
        "I would rather not.",
        '"cats"',
        "parts",
        "{not json",
    ):
        assert part in shown
    assert "reward 1" in shown
    assert "5/-" in ludus("show", "nemo.jsonl", cwd=tmp_path, columns=120).stdout


def test_whole_rollouts_are_listed_before_the_error_about_a_torn_last_line(tmp_path: Path):
    path = written(tmp_path / "torn.jsonl", row(rollout_id="whole-0"))
    path.write_bytes(path.read_bytes() + b'{"rollout_id": "half')
    done = ludus("show", "torn.jsonl", cwd=tmp_path, columns=120)
    assert done.returncode == 2
    assert "whole-0" in done.stdout
    assert done.stderr.startswith("error: torn.jsonl:2: the last line is incomplete. ")
    assert len(done.stderr.splitlines()) == 1
    assert ludus("show", "torn.jsonl", "1", cwd=tmp_path).returncode == 0
    assert ludus("show", "torn.jsonl", "--json", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["none"], "cannot read none: No such file or directory"),
        (["."], ". holds no rollouts.jsonl. Collect some with: ludus collect"),
        (["empty.jsonl"], "empty.jsonl is empty"),
        (["empty.jsonl", "1"], "empty.jsonl has no rollout 1"),
        (["rows.jsonl"], "rows.jsonl:1: not a rollout. Name a file that ludus collect wrote"),
        (["text.jsonl"], "text.jsonl:1: not JSON"),
        (["binary.jsonl"], "binary.jsonl:1: not JSON"),
        (["good.jsonl", "9"], "good.jsonl has no rollout 9. Choose a number from 1 to 1"),
        (["good.jsonl", "0"], "good.jsonl has no rollout 0. Choose a number from 1 to 1"),
        (["good.jsonl", "nobody-0"], "good.jsonl has no rollout nobody-0. List the ids with: ludus show good.jsonl"),
        (["good.jsonl", "--failed"], "cannot read good.failures.jsonl: No such file"),
        (["n" * 300], "File name too long"),
    ],
)
def test_a_user_error_is_one_line(tmp_path: Path, arguments: list[str], error: str):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    written(tmp_path / "rows.jsonl", {"responses_create_params": {"input": "a dataset, no rollout"}})
    written(tmp_path / "good.jsonl", row())
    done = ludus("show", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_failed_attempts_are_found_beside_rollouts_jsonl(run: Path):
    script = ("collect", "./shop", "--model", "scripted:script.yaml", "--output", "named/rollouts.jsonl")
    assert ludus(*script, cwd=run).returncode == 0
    shown = ludus("show", "named/rollouts.jsonl", "--failed", cwd=run)
    assert "the server is on fire" in shown.stdout, shown.stderr
    assert "1 failed: add --failed" in ludus("show", "named/rollouts.jsonl", cwd=run).stdout
    assert "the server is on fire" in ludus("show", "run/rollouts.jsonl", "--failed", cwd=run).stdout


def test_show_failed_says_if_no_attempt_failed(tmp_path: Path):
    written(tmp_path / "rollouts.jsonl", row())
    written(tmp_path / "failures.jsonl")
    done = ludus("show", ".", "--failed", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no attempt failed\n")


def test_a_pipe_that_closes_early_is_not_an_error(tmp_path: Path):
    written(tmp_path / "big.jsonl", row(response={"output": [{"type": "message", "content": "line\n" * 100_000}]}))
    line = f"{sys.executable} -m ludus show big.jsonl 1 | head -n 3"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""


def test_clean_removes_every_control_character():
    everything = "".join(chr(code) for code in range(0x3000))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", clean(everything))
    assert clean("tab\tand\r\nnewline") == "tab\tand\nnewline"
    assert json.loads(safe_json(everything)) == everything
    assert json.loads(safe_json({"\ud800": "\udfff"})) == {"\ud800": "\udfff"}


def test_the_list_of_failed_attempts_names_the_authors_line(tmp_path: Path):
    ludus("new", "shop", cwd=tmp_path)
    code = tmp_path / "shop" / "resources.py"
    code.write_text(re.sub(r"(async def verify\(.*\n)", r'\1        raise ValueError("no price")\n', code.read_text()))
    (tmp_path / "script.yaml").write_text("- Hello.\n")
    words = ("collect", "./shop", "--model", "scripted:script.yaml", "--output", "run")
    collected = ludus(*words, cwd=tmp_path, columns=200)
    (line,) = [line for line in collected.stdout.splitlines() if "first failure" in line]
    assert re.search(r"no price \(resources\.py:\d+ in verify\)", line)
    for columns in (40, 200):
        listed = ludus("show", "run", "--failed", cwd=tmp_path, columns=columns).stdout
        assert re.search(r"resources\.py:\d+ in verify", listed), listed
    (entry, *_) = json.loads(ludus("show", "run", "--failed", "--json", cwd=tmp_path).stdout)
    assert re.fullmatch(r"resources\.py:\d+ in verify", entry["where"])
    missing = ludus("show", "run", "1", cwd=tmp_path)
    assert missing.returncode == 2
    assert "failed: show one with: ludus show run 1 --failed" in missing.stderr
