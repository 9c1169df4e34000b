"""`ludus verify` refuses to write a file that a collection writes, and to score rows of another environment."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import interruptible
import pytest
from waiting import CEILING, until, until_async

import ludus
from ludus import Resources, Response, ScriptedModel
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.errors import UserError
from ludus.model import Request
from ludus.rescore import rescoring
from ludus.rescore.rescoring import rescore
from ludus.store.journal import Journal

Row = dict[str, Any]


class Yes(Resources):
    """Rewards the answer yes, and fails on the answer crash."""

    async def verify(self, task: object, response: Response) -> float:
        if response.output_text == "crash":
            raise ValueError("boom")
        return float(response.output_text == "yes")


class No(Resources):
    """Rewards the answer no."""

    async def verify(self, task: object, response: Response) -> float:
        return float(response.output_text == "no")


SLOW = """
import asyncio
from ludus import Resources

class Slow(Resources):
    async def verify(self, task, response) -> float:
        await asyncio.sleep(%d)
        return 1.0
"""


def asked(*words: str) -> list[Row]:
    return [{"responses_create_params": {"input": f"Say {word}"}} for word in words]


def echo(request: Request) -> str:
    return str(request.input[-1]["content"]).split()[1]


def collected(output: Path, *words: str, environment: Any = Yes) -> Path:
    ludus.collect(environment, model=ScriptedModel(echo), input=asked(*words), output=output)
    return output / "rollouts.jsonl"


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def verify(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ludus", "verify", *map(str, arguments)]
    variables = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    return forked.run(words, cwd=cwd, capture_output=True, text=True, env=variables, timeout=CEILING)


@pytest.mark.parametrize("in_place", [True, False])
async def test_a_file_that_a_collection_writes_is_not_replaced_and_loses_no_rollout(tmp_path: Path, in_place: bool):
    go_on = asyncio.Event()

    async def answer(request: Request) -> str:
        if echo(request) == "later":
            await go_on.wait()
        return "yes"

    options = Options(model=ScriptedModel(answer), input=asked("now", "later"), output=tmp_path / "run")
    collection = Collection(Yes, options)
    running = asyncio.create_task(collection.run(collection.prepare()))
    path, other = tmp_path / "run" / "rollouts.jsonl", tmp_path / "other.jsonl"
    await until_async(lambda: path.exists() and path.stat().st_size > 0)
    other.write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"rollouts\.jsonl is being written by another process") as refused:
        await rescoring.Rescoring(path if in_place else other, Yes, output=path).run()
    assert len(str(refused.value).splitlines()) == 1
    assert not list(path.parent.glob(".*.part"))
    go_on.set()
    await running
    assert len(lines(path)) == 2
    assert rescore(path, Yes, output=path).counts == {"unchanged": 2}


def test_a_collection_cannot_be_resumed_while_its_file_is_verified_in_place(tmp_path: Path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "environment.yaml").write_text("name: slow\nresources: resources.py:Slow\n")
    source = tmp_path / "slow" / "resources.py"
    source.write_text(SLOW % 0)
    ludus.collect(tmp_path / "slow", model=ScriptedModel(["x"]), input=asked("a", "b"), output=tmp_path / "run")
    source.write_text(SLOW % 3600)
    arguments = [sys.executable, "-m", "ludus", "verify", "run", "--env", "./slow", "-o", "run/rollouts.jsonl"]
    process = interruptible.start(arguments, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        until(lambda: list((tmp_path / "run").glob(".rollouts.jsonl.*.part")))
        options: Row = {"input": asked("a", "b"), "output": tmp_path / "run", "repeats": 2, "force": True}
        with pytest.raises(UserError, match=r"rollouts\.jsonl is being written by another process"):
            ludus.collect(tmp_path / "slow", model=ScriptedModel(["x"]), resume=True, **options)
    finally:
        process.kill()
        process.wait()
    assert len(lines(tmp_path / "run" / "rollouts.jsonl")) == 2


def test_a_journal_that_was_replaced_while_it_was_opened_is_opened_again(tmp_path: Path, monkeypatch):
    path, opened = tmp_path / "j.jsonl", os.open
    path.write_bytes(b'{"a":1}\n')

    def open_then_replace(*arguments: Any, **options: Any) -> int:
        file = opened(*arguments, **options)
        monkeypatch.setattr(os, "open", opened)
        new = tmp_path / "new.jsonl"
        new.write_bytes(b'{"b":2}\n')
        new.replace(path)
        return file

    monkeypatch.setattr(os, "open", open_then_replace)
    with Journal(path) as journal:
        journal.append(b'{"c":3}')
    assert path.read_bytes() == b'{"b":2}\n{"c":3}\n'


def test_a_last_line_without_a_newline_survives_a_refused_and_a_finished_verify(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"responses_create_params":{"input":"x"},"response":"yes"}')
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="being written"):
            rescore(path, Yes, output=path)
    assert rescore(path, Yes, output=path).counts == {"new": 1}


def test_rows_of_another_environment_are_refused_and_nothing_is_written(tmp_path: Path):
    path = collected(tmp_path / "run", "yes", "no")
    content = path.read_bytes()
    for output in (path, tmp_path / "new.jsonl"):
        with pytest.raises(UserError, match="line 1 names the environment Yes, not No.*--force") as refused:
            rescore(path, No, output=output)
        assert len(str(refused.value).splitlines()) == 1
    assert path.read_bytes() == content
    assert [each.name for each in sorted(tmp_path.rglob("*.jsonl*"))] == ["failures.jsonl", "rollouts.jsonl"]
    changes = rescore(path, No, output=tmp_path / "new.jsonl", force=True)
    assert changes.counts == {"changed": 2}
    assert rescore(path, Yes).counts == {"unchanged": 2}


def test_a_later_row_of_another_environment_is_refused_too_also_in_a_helper_process(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(rescoring, "MIN_BYTES_FOR_HELPERS", 1)
    monkeypatch.setattr(rescoring, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(rescoring, "HELPER_DELAY", 0.0)
    monkeypatch.setattr(rescoring, "processors", lambda: 3)
    row = {"responses_create_params": {"input": "x" * 500}, "response": "yes", "string_match": "yes"}
    path = tmp_path / "rows.jsonl"
    mine, other = ({**row, "agent_ref": {"name": name}} for name in ("string_match", "mcqa"))
    text = "".join(json.dumps(each) + "\n" for each in [*[mine] * 20_000, other, *[mine] * 20_000])
    path.write_text(text)
    with pytest.raises(UserError, match="line 20001 names the environment mcqa"):
        rescore(path, "string_match", output=path)
    assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("name", ["mcqa", "mcqa_simple_agent", "an_agent_of_somebody_else"])
def test_a_row_from_elsewhere_may_name_its_agent(tmp_path: Path, name: str):
    row = {"responses_create_params": {"input": "x"}, "options": [{"A": "a"}, {"B": "b"}], "expected_answer": "A"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "agent_ref": {"name": name}, "response": "\\boxed{A}"}) + "\n")
    assert rescore(path, "mcqa").counts == {"new": 1}
    if "mcqa" in name:
        with pytest.raises(UserError, match="line 1 names the environment mcqa, not string_match"):
            rescore(path, "string_match")


def test_a_collection_is_verified_in_its_environment_whatever_agent_its_dataset_names(tmp_path: Path):
    rows = [{**row, "agent_ref": {"name": "mcqa_simple_agent"}} for row in asked("yes")]
    ludus.collect(Yes, model=ScriptedModel(echo), input=rows, output=tmp_path)
    assert rescore(tmp_path, Yes).counts == {"unchanged": 1}
    with pytest.raises(UserError, match="line 1 names the environment mcqa, not No"):
        rescore(tmp_path, No)


def test_the_command_refuses_in_one_line_and_takes_force(tmp_path: Path):
    path = collected(tmp_path / "run", "yes")
    done = verify(path, "--env", "string_match", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: line 1 names the environment Yes, not string_match. "
        "Add --env FOLDER_OF_Yes for it, or --force to score it in string_match\n"
    )
    forced = verify(path, "--env", "example_single_tool_call", "--force", "--json", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert json.loads(forced.stdout)["rows"] == 1


def test_the_exit_code_is_1_if_any_row_failed(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    row = {"responses_create_params": {"input": "x"}, "options": [{"A": "a"}, {"B": "b"}], "expected_answer": "A"}
    path.write_text(json.dumps({**row, "response": "\\boxed{A}"}) + "\nnot JSON\n")
    done = verify(path, "--env", "mcqa", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["rows"], found["new"], found["failed"]) == (1, 2, 1, 1)
    path.write_text(json.dumps({**row, "response": "\\boxed{A}"}) + "\n")
    assert verify(path, "--env", "mcqa", cwd=tmp_path).returncode == 0


def unjudged_rows(path: Path, *answers: str) -> Path:
    """Rows of an environment whose verifier asks a judge, each with an answer."""
    row = {"responses_create_params": {"input": "Which planet is the largest?"}, "expected_answer": "Jupiter"}
    row["agent_ref"] = {"name": "equivalence_llm_judge"}
    path.write_text("".join(json.dumps({**row, "response": answer}) + "\n" for answer in answers))
    return path


def test_a_missing_judge_is_said_once_and_no_row_is_scored(tmp_path: Path):
    path = unjudged_rows(tmp_path / "rows.jsonl", *(f"Jupiter {index}" for index in range(100)))
    done = verify(path, "--output", tmp_path / "new.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: these rows need a judge. Name a model with: --set resources.judge=SPEC, "
        'or in Python with: settings={"resources.judge": SPEC}\n'
    )
    assert done.stdout == ""
    assert not (tmp_path / "new.jsonl").exists()


def test_rows_that_need_a_judge_after_others_that_do_not_fail_alone(tmp_path: Path):
    path = unjudged_rows(tmp_path / "rows.jsonl", *["Jupiter"] * 4)
    choice = {"responses_create_params": {"input": "x"}, "options": [{"A": "a"}, {"B": "b"}], "expected_answer": "A"}
    choice |= {"agent_ref": {"name": "mcqa"}, "response": "\\boxed{A}"}
    path.write_text(json.dumps(choice) + "\n" + path.read_text())
    done = verify(path, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("need a judge") == 1
    assert "lines 2, 3, 4, 5: open: no_judge: these rows need a judge" in " ".join(done.stdout.split())


def test_python_is_told_how_to_name_a_judge(tmp_path: Path):
    path = unjudged_rows(tmp_path / "rows.jsonl", "Jupiter", "Saturn")
    remedy = r'need a judge\. .*--set resources\.judge=SPEC, or in Python with: settings=\{"resources\.judge": SPEC\}$'
    with pytest.raises(UserError, match=remedy):
        rescore(path)
    row = json.loads(path.read_text().splitlines()[0])
    with pytest.raises(UserError, match=remedy):
        ludus.collect("equivalence_llm_judge", model=ScriptedModel(["Jupiter"]), input=[row])
