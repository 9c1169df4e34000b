"""`ludus.testing`: judging, replaying and comparing recorded lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus import Failure, Resources, Response, Task, Verdict, tool
from ludus.response import function_call, function_call_output
from ludus.testing import disagreement, golden, judge, replay, same, shared_path


class Tally(Resources):
    """Counts its calls."""

    calls = 0

    @tool
    async def count(self) -> dict[str, int]:
        """Count one."""
        self.calls += 1
        return {"calls": self.calls}

    async def verify(self, task: Task, response: Response) -> Verdict:
        if response.output_text == "boom":
            raise RuntimeError("boom")
        return Verdict(float(self.calls), note="same")


ROW = {"responses_create_params": {"input": "Count."}}


def line(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"row": ROW, "response": {"output": list(items)}, "class": "well_formed", **fields}


async def test_only_calls_with_an_output_run_before_the_verdict() -> None:
    answered = [function_call("count", "", call_id="1"), function_call_output("1", "")]
    verdict = await replay(Tally, line(*answered, function_call("count", "", call_id="2")))
    assert verdict.reward == 1.0


async def test_recorded_executed_calls_replace_the_calls_of_the_response() -> None:
    calls = [{"name": "count", "arguments": {}}] * 3
    assert (await replay(Tally, line(session={"seeded": True, "executed_calls": calls}))).reward == 3.0


async def test_tool_lines_return_the_outputs_that_a_model_would_see() -> None:
    calls = [{"name": "count", "arguments": {}}, {"name": "missing", "arguments": {}}]
    outputs = await replay(Tally, line(kind="tool", calls=calls))
    assert outputs == ['{"calls":1}', '{"detail":"Not Found"}']


async def test_a_refused_row_and_a_crash_come_back_as_failures() -> None:
    refused = await judge(Tally, {}, "x")
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.stage) == ("bad_row", "open")
    crashed = await judge(Tally, ROW, "boom")
    assert isinstance(crashed, Failure)
    assert (crashed.kind, crashed.stage) == ("crash", "verify")


@pytest.mark.parametrize(
    ("result", "fields", "agrees"),
    [
        (Verdict(1.0, note="a"), {"reference_reward": 1.0, "reference_extra": {"note": "a", "other": 1}}, True),
        (Verdict(1.0, note="a"), {"reference_reward": 1.0, "reference_extra": {"note": "b"}}, False),
        (Verdict(1.0), {"reference_reward": 0.0}, False),
        (Verdict(0.0), {"reference_reward": None, "reference_error": "HTTP 500"}, True),
        (Verdict(1.0), {"reference_reward": None, "reference_error": "HTTP 500"}, False),
        (Failure("bad_row", "x"), {"reference_reward": None, "reference_error": "HTTP 422"}, True),
        (Failure("bad_row", "x"), {"reference_reward": 0.0}, False),
        (Failure("crash", "x"), {"reference_reward": None, "reference_error": "HTTP 500"}, False),
        (['{"a": 1}'], {"reference_outputs": ['{"a":1}']}, True),
        (['{"a": 1}'], {"reference_outputs": ['{"a":1}', "{}"]}, False),
    ],
)
def test_a_result_must_equal_the_recorded_one(result: Any, fields: Any, agrees: bool) -> None:
    assert (disagreement(line(**fields), result) is None) is agrees


def test_with_free_only_a_crash_disagrees() -> None:
    assert disagreement(line(reference_reward=1.0), Verdict(0.0), free=True) is None
    assert disagreement(line(reference_reward=1.0), Failure("timeout", "x"), free=True) is None
    assert disagreement(line(reference_reward=1.0), Failure("crash", "x"), free=True) is not None


def test_texts_are_compared_as_json_only_if_both_are_json() -> None:
    assert same('{"a": [1, 2]}', '{"a":[1,2.0]}')
    assert not same("a", '"a"')
    assert not same("1", 1)


def test_a_test_is_skipped_without_the_shared_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUDUS_SHARED", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="LUDUS_SHARED"):
        shared_path("golden")
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "mine.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    assert list(golden("mine")) == [{"a": 1}, {"a": 2}]
