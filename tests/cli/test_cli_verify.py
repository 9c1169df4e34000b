"""`ludus verify` scores stored rows again, in order: each row gets a reward or a failure with a kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import interruptible
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import CEILING, until

import ludus
from ludus import Resources, ResourcesConfig, Response, ScriptedModel, Task, Verdict, tool
from ludus.outcome import NAMES, RECORD
from ludus.record import task_row
from ludus.rescore import rescoring
from ludus.rescore.rescoring import rescore

RESOURCES = """
import asyncio
import ludus
from ludus import Resources, ResourcesConfig, Response, Verdict

class Echo(Resources):
    class Task(ludus.Task):
        wanted: str
        pause: float = 0.0

    class Config(ResourcesConfig):
        bonus: float = 0.0

    async def verify(self, task: Task, response: Response) -> Verdict:
        text = response.output_text
        if task.pause:
            await asyncio.sleep(task.pause)
        if text == "crash":
            raise ValueError("boom")
        reward = float(text == task.wanted) + self.config.bonus
        return Verdict(reward, said=text, mask="odd" if text == "odd" else None)
"""
ENVIRONMENT = """
name: echo
resources: resources.py:Echo
"""


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "ludus", *map(str, arguments)]


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return forked.run(
        command(*arguments), cwd=cwd, capture_output=True, text=True, env=variables, timeout=CEILING, encoding="utf-8"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the environment `echo`, which rewards one word."""
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "resources.py").write_text(RESOURCES)
    (tmp_path / "echo" / "environment.yaml").write_text(ENVIRONMENT)
    return tmp_path


def said(text: str, wanted: str = "yes", **fields: Any) -> dict[str, Any]:
    """A row that is not a rollout: a task's fields and a response."""
    response = {"output": [{"type": "message", "role": "assistant", "content": text}]}
    return {"responses_create_params": {"input": "Say it."}, "wanted": wanted, "response": response, **fields}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def collected(path: Path, *answers: str, **options: Any) -> Path:
    """Collect rollouts of `echo`, one task for each answer."""
    rows = [
        {"responses_create_params": {"input": f"Say {answer} {number}"}, "wanted": "yes"}
        for number, answer in enumerate(answers)
    ]
    model = ScriptedModel(lambda request: request.input[-1]["content"].split()[1])
    ludus.collect(path.parent / "echo", model=model, input=rows, output=path, **options)
    return path


def test_the_same_verifier_writes_the_same_bytes_again(folder: Path):
    collected(folder / "run", "yes", "no", "odd", repeats=2)
    done = run("verify", "run", "--env", "./echo", "--output", "again.jsonl", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["unchanged"], found["masked"]) == (6, 6, 2)
    assert (folder / "again.jsonl").read_bytes() == (folder / "run" / "rollouts.jsonl").read_bytes()


@pytest.mark.parametrize("odd", ["NaN", "1e400", '"\\udfff"', str(2**1100), str(2**70), '"plain"'])
def test_a_new_receipt_changes_nothing_else_in_a_row(folder: Path, odd: str):
    collected(folder / "run", "yes")
    line = (folder / "run" / "rollouts.jsonl").read_text().rstrip("\n")
    given = json.loads(line[:-1] + f', "odd": {odd}}}')
    (folder / "odd.jsonl").write_text(line[:-1] + f', "odd": {odd}}}\n')
    assert run("verify", "odd.jsonl", "--env", "./echo", "--output", "once.jsonl", cwd=folder).returncode == 0
    assert run("verify", "once.jsonl", "--env", "./echo", "--output", "twice.jsonl", cwd=folder).returncode == 0
    written = json.loads((folder / "once.jsonl").read_text())
    assert written["receipt"] != given["receipt"]
    assert {**written, "receipt": 0, "odd": repr(written["odd"])} == {**given, "receipt": 0, "odd": repr(given["odd"])}
    assert (folder / "twice.jsonl").read_bytes() == (folder / "once.jsonl").read_bytes()


def test_a_changed_setting_changes_rewards_and_the_changes_are_listed(folder: Path):
    collected(folder / "run", *["yes", "no"] * 10)
    done = run("verify", "run", "-e", "./echo", "--set", "resources.bonus=0.5", "-o", "new.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = [line.split("│")[1:4] for line in done.stdout.splitlines() if line.startswith("│")]
    table = {name.strip(): value.strip() for name, value, _ in lines}
    assert (table["unchanged"], table["changed"], table["mean reward"]) == ("0", "20", "0.500 → 1.000")
    assert "10 more changed" in done.stdout
    before, after = read(folder / "run" / "rollouts.jsonl"), read(folder / "new.jsonl")
    assert [row["reward"] for row in after] == [row["reward"] + 0.5 for row in before]
    assert [row["rollout_id"] for row in after] == [row["rollout_id"] for row in before]
    assert all(row["receipt"] != old["receipt"] for row, old in zip(after, before, strict=True))
    unchanged = {"response", "usage", "timings", "model_calls", "stop_reason", "rollout_seed", "wanted", "agent_ref"}
    assert all(row[key] == old[key] for row, old in zip(after, before, strict=True) for key in unchanged)
    assert run("show", "new.jsonl", "1", cwd=folder).returncode == 0


def test_without_an_output_no_file_is_written(folder: Path):
    collected(folder / "run", "yes")
    names = sorted(folder.rglob("*"))
    assert run("verify", "run", "-e", "./echo", cwd=folder).returncode == 0
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in names if "__pycache__" not in path.parts
    ]


HOSTILE_LINES = [
    "not JSON",
    "7",
    "[]",
    "null",
    '{"a": ' * 2000,
    json.dumps(said("yes")).replace('"yes"', '{"a": ' * 900 + "1" + "}" * 900, 1),
    json.dumps(said("yes", extra=0)).replace('"extra": 0', '"extra": ' + "[" * 990 + "]" * 990),
    '"\\ud800"',
    json.dumps({"wanted": "yes"}),
    json.dumps({**said("yes"), "response": None}),
    json.dumps({**said("yes"), "response": 5}),
    json.dumps({**said("yes"), "response": {"output": [7]}}),
    json.dumps({**said("yes"), "response": {"output": [{"type": "function_call"}]}}),
    json.dumps({**said("yes"), "wanted": 9}),
    json.dumps({**said("yes"), "responses_create_params": {}}),
    '{"torn": ',
]


def test_every_line_but_a_torn_last_one_gets_a_row_in_order_even_if_it_is_invalid(folder: Path):
    lines = []
    for number, line in enumerate(HOSTILE_LINES):
        lines += [said("yes", mark=number), line, "", said("crash", mark=number)]
    path = write(folder / "rows.jsonl", *lines)
    path.write_bytes(path.read_bytes().rstrip() + b'\n{"half')
    done = run("verify", "rows.jsonl", "--env", "./echo", "--output", "out.jsonl", "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    found, rows = json.loads(done.stdout), read(folder / "out.jsonl")
    assert len(rows) == found["rows"] == 3 * len(HOSTILE_LINES)
    assert found["torn"] == 1
    for number in range(len(HOSTILE_LINES)):
        good, bad, crashed = rows[3 * number : 3 * number + 3]
        assert (good["outcome"], good["reward"], good["mark"]) == ("completed", 1.0, number)
        assert (bad["outcome"], bad["kind"], bad["line"]) == ("failed", "bad_row", 4 * number + 2)
        assert bad["stage"] in ("open", "verify")
        assert bad["cause"]
        assert (crashed["stage"], crashed["kind"], crashed["cause"]) == ("verify", "crash", "ValueError: boom")
        assert crashed["mark"] == number
        assert not {"reward", "receipt"} & (bad.keys() | crashed.keys())
    assert found["new"] == len(HOSTILE_LINES)
    shown = run("show", "out.jsonl", "--limit", "100", cwd=folder)
    assert shown.returncode == 0, shown.stderr


def test_rows_without_ids_get_ids_and_a_text_is_accepted_as_a_response(folder: Path):
    write(folder / "rows.jsonl", {**said(""), "response": "yes"}, said("no", task_id=7), said("no", task_id=7))
    assert run("verify", "rows.jsonl", "--env", "./echo", "-o", "out.jsonl", cwd=folder).returncode == 0
    rows = read(folder / "out.jsonl")
    assert [row["reward"] for row in rows] == [1.0, 0.0, 0.0]
    assert len({row["rollout_id"] for row in rows}) == 3
    assert [row["task_id"] for row in rows[1:]] == ["7", "7"]
    rollouts = [ludus.Rollout.from_row(row) for row in rows]
    assert rollouts[0].response is not None
    assert rollouts[0].response.output_text == "yes"
    assert rescore(folder / "out.jsonl", folder / "echo", stale=True).counts == {"fresh": 3}


def test_the_exit_code_is_1_if_no_row_can_be_scored(folder: Path):
    write(folder / "rows.jsonl", said("crash"), "nonsense")
    done = run("verify", "rows.jsonl", "--env", "./echo", cwd=folder)
    assert done.returncode == 1
    assert "verify/crash" in done.stdout
    assert "line 2: open: bad_row: not JSON" in done.stdout


def test_stale_scores_only_rows_whose_task_response_or_verifier_changed(folder: Path):
    run_folder = collected(folder / "run", "yes", "no", "yes")
    path = run_folder / "rollouts.jsonl"
    rows = read(path)
    rows[1]["wanted"] = "no"  # the task was wrong
    rows[2]["response"]["output"][0]["content"][0]["text"] = "no"
    write(path, *rows)
    lines = path.read_bytes().splitlines()
    done = run("verify", "run", "--env", "./echo", "--stale", "--output", path, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["fresh"], found["changed"]) == (1, 2)
    assert [row["reward"] for row in read(path)] == [1.0, 1.0, 0.0]
    assert path.read_bytes().splitlines()[0] == lines[0]
    again = run("verify", "run", "--env", "./echo", "--stale", "--json", cwd=folder)
    assert json.loads(again.stdout)["fresh"] == 3
    source = folder / "echo" / "resources.py"
    source.write_text(source.read_text().replace("== task.wanted", "!= task.wanted"))
    changed = json.loads(run("verify", "run", "-e", "./echo", "--stale", "--json", cwd=folder).stdout)
    assert (changed["fresh"], changed["changed"]) == (0, 3)


def test_stale_retries_failed_rows(folder: Path):
    write(folder / "rows.jsonl", said("crash", wanted="crash", kind="a field", line="another"), said("yes"))
    run("verify", "rows.jsonl", "--env", "./echo", "-o", "out.jsonl", cwd=folder)
    source = folder / "echo" / "resources.py"
    source.write_text(source.read_text().replace('raise ValueError("boom")', "pass"))
    done = run("verify", "out.jsonl", "--env", "./echo", "--stale", "-o", "out.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    row = read(folder / "out.jsonl")[0]
    assert (row["outcome"], row["reward"], row["kind"], row["line"]) == ("completed", 1.0, "a field", "another")
    assert "cause" not in row


def test_slow_rows_keep_their_order(folder: Path):
    write(folder / "rows.jsonl", *(said("yes", mark=n, pause=0.3 if n % 40 == 0 else 0.001) for n in range(200)))
    changes = rescore(folder / "rows.jsonl", folder / "echo", output=folder / "out.jsonl", concurrency=32)
    assert changes.counts == {"new": 200}
    assert [row["mark"] for row in read(folder / "out.jsonl")] == list(range(200))


def test_a_hanging_verifier_fails_only_its_own_row(folder: Path):
    write(folder / "rows.jsonl", said("yes"), said("yes", pause=3600), said("yes"))
    done = run("verify", "rows.jsonl", "-e", "./echo", "--set", "limits.verify=0.3", "-o", "out.jsonl", cwd=folder)
    assert done.returncode == 1, done.stderr
    rows = read(folder / "out.jsonl")
    assert [row["outcome"] for row in rows] == ["completed", "failed", "completed"]
    assert (rows[1]["stage"], rows[1]["kind"], rows[1]["cause"]) == (
        "verify",
        "timeout",
        "verify timed out after 0.3 s",
    )


class Notes(Resources):
    """A notebook for one rollout."""

    class Config(ResourcesConfig):
        loud: bool = False

    async def open(self, task: Task) -> None:
        self.notes: list[str] = []

    @tool
    async def write(self, text: str) -> dict[str, int]:
        """Write a note."""
        self.notes.append(text.upper() if self.config.loud else text)
        return {"notes": len(self.notes)}

    @tool
    async def read(self) -> str:
        """Read all notes."""
        return " ".join(self.notes)

    def verify(self, task: Task, response: Response) -> float:
        return float(self.notes == ["a", "b"])


def test_tool_calls_run_again_and_drift_is_reported(tmp_path: Path):
    turns: list[Any] = [{"calls": [{"name": "write", "arguments": {"text": text}} for text in "ab"]}, {"call": "read"}]
    rows = [{"responses_create_params": {"input": "Write a and b."}}]
    ludus.collect(Notes, model=ScriptedModel([*turns, "Done."]), input=rows, output=tmp_path / "run", repeats=3)
    assert rescore(tmp_path / "run", Notes).counts == {"unchanged": 3}
    out = tmp_path / "out.jsonl"
    changes = rescore(tmp_path / "run", Notes, output=out, settings={"resources.loud": True})
    assert (changes.counts, changes.drift_count) == ({"changed": 3}, 3)
    drifted = read(out)
    assert changes.drifted == [row["rollout_id"] for row in drifted]
    drift = drifted[0]["replay_drift"]
    assert drift["count"] == 1
    assert {key: drift["calls"][0][key] for key in ("name", "recorded", "replayed")} == {
        "name": "read",
        "recorded": "a b",
        "replayed": "A B",
    }
    back = rescore(out, Notes, output=out)
    assert (back.counts, back.drift_count) == ({"changed": 3}, 0)
    assert "replay_drift" not in read(out)[0]


def test_calls_without_an_output_are_not_run(tmp_path: Path):
    def call(text: str) -> dict[str, Any]:
        arguments = json.dumps({"text": text})
        return {"type": "function_call", "name": "write", "call_id": "same", "arguments": arguments}

    def output(notes: int) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": "same", "output": json.dumps({"notes": notes}, indent=1)}

    items = [call("a"), output(1), call("b"), output(2), call("c")]
    row = {"responses_create_params": {"input": "Write."}, "response": {"output": items}}
    write(tmp_path / "rows.jsonl", row)
    changes = rescore(tmp_path / "rows.jsonl", Notes, output=tmp_path / "out.jsonl")
    assert (changes.counts, changes.drift_count) == ({"new": 1}, 0)
    assert read(tmp_path / "out.jsonl")[0]["reward"] == 1.0


def test_a_failed_judge_gives_no_reward(tmp_path: Path):
    row = {"question": "What is 3 + 4?", "expected_answer": "seven", "response": r"\boxed{eight}"}
    write(tmp_path / "rows.jsonl", {"responses_create_params": {"input": "What is 3 + 4?"}, **row})
    (tmp_path / "judge.yaml").write_text("[{error: {kind: http_500, cause: the judge is away}}]\n")
    judge = ("--env", "equivalence_llm_judge", "--set", "resources.judge=scripted:judge.yaml")
    done = run("verify", "rows.jsonl", *judge, "-o", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    failed = read(tmp_path / "out.jsonl")[0]
    assert (failed["outcome"], failed["stage"], failed["kind"]) == ("failed", "verify", "judge")
    assert "reward" not in failed


def test_each_row_can_name_its_environment_in_agent_ref(tmp_path: Path):
    counter = {"responses_create_params": {"input": "Nothing."}, "initial_count": 1, "expected_count": 1}
    choice = {"responses_create_params": {"input": "?"}, "options": [{"A": "x"}], "expected_answer": "A"}
    named = [
        {**counter, "response": "Done.", "agent_ref": {"name": "example_session_state_mgmt"}},
        {**choice, "response": r"\boxed{A}", "agent_ref": {"name": "mcqa_simple_agent"}},
        {**choice, "response": r"\boxed{A}", "agent_ref": {"name": "../mcqa"}},
        {**choice, "response": r"\boxed{A}", "agent_ref": {"name": "nobody"}},
        {**choice, "response": r"\boxed{A}"},
    ]
    write(tmp_path / "rows.jsonl", *named)
    done = run("verify", "rows.jsonl", "--output", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    rows = read(tmp_path / "out.jsonl")
    assert [row.get("reward") for row in rows] == [1.0, 1.0, None, None, None]
    assert "is not the name of an environment" in rows[2]["cause"]
    assert "unknown environment nobody" in rows[3]["cause"]
    assert "names no environment" in rows[4]["cause"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_leaves_the_first_rows_in_the_output(folder: Path, how: signal.Signals):
    pauses = (0.01 if n < 2_000 else 3600.0 for n in range(20_000))  # it does not end by itself
    write(folder / "rows.jsonl", *(said("yes", mark=n, pause=pause) for n, pause in enumerate(pauses)))
    out = folder / "out.jsonl"
    arguments = command("verify", "rows.jsonl", "--env", "./echo", "--output", out)
    process = interruptible.start(arguments, cwd=folder, stderr=subprocess.PIPE, text=True)
    until(lambda: (out.exists() and out.stat().st_size > 100_000) or process.poll() is not None)
    process.send_signal(how)
    _, errors = process.communicate(timeout=CEILING)
    if how == signal.SIGKILL:  # in the middle of a write
        out.write_bytes(out.read_bytes().rpartition(b"\n")[0] + b"\n")
    rows = read(out)
    assert 0 < len(rows) < 20_000
    assert [row["mark"] for row in rows] == list(range(len(rows)))
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert f"stopped: the first {len(rows):,} rows are in" in errors


def test_an_existing_output_is_replaced_only_when_all_rows_are_scored(folder: Path):
    rows = write(folder / "rows.jsonl", *(said("yes", pause=3600.0) for n in range(20_000)))
    content = rows.read_bytes()
    process = forked.start(command("verify", "rows.jsonl", "-e", "./echo", "-o", "rows.jsonl"), cwd=folder)
    until(lambda: list(folder.glob(".rows.jsonl.*.part")))
    process.kill()
    process.wait()
    assert rows.read_bytes() == content
    write(rows, said("yes"))
    assert rescore(rows, folder / "echo", output=rows).counts == {"new": 1}
    assert read(rows)[0]["reward"] == 1.0
    assert len(list(folder.glob(".rows.jsonl.*.part"))) == 1  # of the killed process


def test_helper_processes_write_the_same_output_as_one_process(folder: Path, monkeypatch: pytest.MonkeyPatch):
    lines = [said(("yes", "no", "crash", "odd")[n % 4], mark=n) for n in range(4000)]
    write(folder / "rows.jsonl", *lines, "nonsense")
    alone = rescore(folder / "rows.jsonl", folder / "echo", output=folder / "alone.jsonl", concurrency=1)
    monkeypatch.setattr(rescoring, "MIN_BYTES_FOR_HELPERS", 0)
    monkeypatch.setattr(rescoring, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(rescoring, "processors", lambda: 3)
    helped = rescore(folder / "rows.jsonl", folder / "echo", output=folder / "helped.jsonl")
    assert helped.summary() == alone.summary()
    assert (folder / "helped.jsonl").read_bytes() == (folder / "alone.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_file(folder: Path):
    program = "import re, sys; from ludus.rescore.rescoring import rescore; "
    program += "rescore('rows.jsonl', './echo', output=sys.argv[1], concurrency=1); "
    program += "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])"
    peaks = []
    for count in (500, 20_000):
        write(folder / "rows.jsonl", *(said("yes" * 300, mark=n) for n in range(count)))
        arguments = [sys.executable, "-c", program, f"{count}.jsonl"]
        peaks.append(int(subprocess.run(arguments, cwd=folder, capture_output=True, check=True).stdout))
    assert peaks[1] - peaks[0] < 10_000  # KB


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["none.jsonl"], "cannot read none.jsonl: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl holds no rows"),
        (["."], ". holds no rollouts.jsonl"),
        (["rows.jsonl", "--env", "nobody"], "unknown environment nobody"),
        (["rows.jsonl", "--env", "./echo", "--set", "resources.bonos=1"], "resources has no setting bonos"),
        (["rows.jsonl", "--env", "./echo", "--set", "model.x=1"], "unknown setting model.x"),
        (["rows.jsonl", "--env", "./echo", "--set", "agent.max_steps=1"], "agent.max_steps would change nothing"),
        (["rows.jsonl", "--env", "./echo", "--output", "."], "cannot write .: it is not a file"),
    ],
)
def test_a_user_error_is_one_line(folder: Path, arguments: list[str], error: str):
    write(folder / "empty.jsonl")
    write(folder / "rows.jsonl", said("yes"))
    done = run("verify", *arguments, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


class Anything(Resources):
    """Accepts any row, and returns verdict values whose names clash with row fields."""

    async def verify(self, task: Task, response: Response) -> Verdict:
        values = {"wanted": "hidden", "usage": 1, "stage": "a", "said": [1]}
        return Verdict(0.5, **{key: value for key, value in values.items() if key in (task.model_extra or {})})


_names = st.sampled_from([*sorted(RECORD), "wanted", "said", "stage", "line", "task_id", "agent_ref", "other"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=12, deadline=None)
@given(rows=st.lists(st.dictionaries(_names, _values, max_size=6), min_size=1, max_size=12))
def test_any_row_is_scored_and_keeps_its_task_fields(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("rows")
    given = [{"responses_create_params": {"input": "?"}, **row, "response": "yes"} for row in rows]
    changes = rescore(write(folder / "rows.jsonl", *given), Anything, output=folder / "out.jsonl")
    assert changes.rows == len(rows)
    answered = read(folder / "out.jsonl")
    for row, source in zip(answered, given, strict=True):
        assert row["outcome"] in ("completed", "failed")
        if row["outcome"] == "completed":
            kept, task = task_row(row), task_row(source)
            assert {key: kept[key] for key in task} == task
            assert kept.keys() - task.keys() <= NAMES
    rescore(folder / "out.jsonl", Anything, output=folder / "out.jsonl")
    assert read(folder / "out.jsonl") == answered
