"""A tool that raises is visible to its author: in the record, the metrics, the table and `ludus show`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import forked
import orjson
import pytest
from serving import served, url_of

import ludus
from ludus import Rollout, ScriptedModel

RESOURCES = '''\
from ludus import Resources, tool


class Desk(Resources):
    @tool
    async def look_up(self, name: str) -> str:
        """Look up a person."""
        return find(name)

    @tool
    def count(self) -> int:
        """Count the people."""
        return len(PEOPLE) // 0

    async def verify(self, task, response):
        return 1.0


PEOPLE = {"Ada": "mathematician"}


def find(name):
    return PEOPLE[name]
'''
LOOK_UP = {"tool": "look_up", "exception": "KeyError", "where": "resources.py:23 in find"}
COUNT = {"tool": "count", "exception": "ZeroDivisionError", "where": "resources.py:13 in count"}
SCRIPT = [
    {"calls": [{"name": "look_up", "arguments": {"name": "Bob"}}, {"name": "look_up", "arguments": {"name": "Eve"}}]},
    {"call": "count", "arguments": {}},
    {"call": "look_up", "arguments": {"name": "Ada"}},
    {"call": "look_up", "arguments": {"nam": "Ada"}},
    {"call": "no_such_tool", "arguments": {}},
    "done",
]
ROWS = [{"responses_create_params": {"input": str(number)}} for number in range(3)]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: desk\nresources: resources.py:Desk\n")
    (folder / "resources.py").write_text(RESOURCES)
    return folder


def model() -> ScriptedModel:
    return ScriptedModel(SCRIPT)


def test_tool_errors_are_counted_by_tool_and_exception_with_the_authors_line(desk: Path):
    result = ludus.collect(desk, model=model(), input=ROWS)
    assert result.metrics["tool_errors"] == [{**LOOK_UP, "count": 6}, {**COUNT, "count": 3}]
    assert result.metrics["counts"]["completed"] == 3
    assert result.rollouts[0].to_row()["tool_errors"] == [{**LOOK_UP, "count": 2}, {**COUNT, "count": 1}]


def test_mistakes_of_the_model_are_no_tool_errors(desk: Path):
    result = ludus.collect(desk, model=ScriptedModel(SCRIPT[2:]), input=ROWS)
    assert result.metrics["tool_errors"] == []
    assert "tool_errors" not in result.rollouts[0].to_row()


def test_the_model_reads_the_error_but_not_the_authors_line(desk: Path):
    response = ludus.collect(desk, model=model(), input=ROWS[:1]).rollouts[0].response
    assert response is not None
    outputs = [item["output"] for item in response.output if item.get("type") == "function_call_output"]
    assert outputs[0] == '{"error":"KeyError: \'Bob\'"}'
    assert not any("resources.py" in output for output in outputs)


def test_tool_errors_fail_makes_them_failures_with_the_authors_line(desk: Path):
    result = ludus.collect(desk, model=model(), input=ROWS, settings={"agent.tool_errors": "fail"})
    assert result.metrics["counts"]["failed"] == 3
    assert result.metrics["failures"] == {"tool/crash": 3}
    error = result.rollouts[0].error
    assert error is not None
    assert (error.stage, error.kind, error.where) == ("tool", "crash", LOOK_UP["where"])
    assert error.cause in ("tool `look_up` raised KeyError: 'Bob'", "tool `look_up` raised KeyError: 'Eve'")


def test_tool_errors_fail_leaves_the_models_mistakes_to_the_model(desk: Path):
    result = ludus.collect(desk, model=ScriptedModel(SCRIPT[2:]), input=ROWS, settings={"agent.tool_errors": "fail"})
    assert result.metrics["counts"]["completed"] == 3


def test_a_setting_other_than_show_and_fail_is_refused(desk: Path):
    with pytest.raises(ludus.UserError, match=r"agent.tool_errors must be 'show' or 'fail', not 'hide'"):
        ludus.collect(desk, model=model(), input=ROWS, settings={"agent.tool_errors": "hide"})


@pytest.mark.parametrize("part", ["resources", "agent"])
def test_tool_errors_on_a_server_are_counted_like_those_in_this_process(desk: Path, part: str):
    (desk / "script.yaml").write_bytes(orjson.dumps(SCRIPT))
    spec = f"scripted:{desk / 'script.yaml'}"
    only_resources = part == "resources"
    with served(str(desk), model=spec, resources_only=only_resources) as serving:
        url = url_of(serving, "desk" if only_resources else "desk_simple_agent")
        result = ludus.collect(desk, model=spec, input=ROWS, **{part: url})
    assert result.metrics["tool_errors"] == [{**LOOK_UP, "count": 6}, {**COUNT, "count": 3}]


def test_tool_errors_fail_with_resources_on_a_server(desk: Path):
    with served(str(desk), resources_only=True) as serving:
        settings: dict[str, Any] = {"agent.tool_errors": "fail"}
        url = url_of(serving, "desk")
        result = ludus.collect(desk, model=model(), input=ROWS, resources=url, settings=settings)
    assert result.metrics["failures"] == {"tool/crash": 3}
    error = result.rollouts[0].error
    assert error is not None
    assert error.where == LOOK_UP["where"]


def test_a_resumed_run_counts_the_recorded_tool_errors_too(desk: Path, tmp_path: Path):
    out = tmp_path / "out"
    ludus.collect(desk, model=model(), input=ROWS, output=out)
    more = ludus.collect(desk, model=model(), input=ROWS, output=out, resume=True, repeats=2)
    assert more.metrics["tool_errors"] == [{**LOOK_UP, "count": 12}, {**COUNT, "count": 6}]
    assert next(iter(more)).to_row()["tool_errors"] == [{**LOOK_UP, "count": 2}, {**COUNT, "count": 1}]


@pytest.mark.parametrize("other", ["text", [1], [{"tool": "x"}], [{**LOOK_UP, "count": "many"}]])
def test_a_field_of_that_name_that_another_program_wrote_is_ignored(desk: Path, other: Any):
    row = ludus.collect(desk, model=model(), input=ROWS[:1]).rollouts[0].to_row()
    assert Rollout.from_row({**row, "tool_errors": other}).tool_errors == []


def ludus_command(*words: str, cwd: Path) -> str:
    done = forked.run(
        [sys.executable, "-m", "ludus", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_and_show_name_the_tool_the_exception_and_the_line(desk: Path):
    (desk / "script.yaml").write_bytes(orjson.dumps(SCRIPT))
    (desk / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, ROWS)))
    words = ("collect", ".", "--input", "rows.jsonl", "--model", "scripted:script.yaml", "--output", "out")
    table = ludus_command(*words, cwd=desk)
    assert "tool errors" in table
    assert "6 times look_up: KeyError at resources.py:23 in find" in table
    assert "3 times count: ZeroDivisionError at resources.py:13 in count" in table
    shown = ludus_command("show", "out", "1", cwd=desk)
    assert "tool errors: 2 times look_up: KeyError at resources.py:23 in find" in shown
    assert "tool errors: once count: ZeroDivisionError at resources.py:13 in count" in shown
