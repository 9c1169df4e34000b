"""Rows of the same task that stand near each other, and records of which only the receipt changes."""

import json
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ludus
from ludus import ScriptedModel
from ludus.rescore.rescoring import rescore

OPTIONS = [{letter: f"option {letter}"} for letter in "ABCD"]
OTHER_VERIFIER = {"resources.grading_mode": "lenient_boxed"}


def row(answer: str = "B", **fields: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Which?"}]}
    return {"responses_create_params": params, "options": OPTIONS, "expected_answer": answer, **fields}


def collected(rows: list[dict[str, Any]], text: str = r"\boxed{B}") -> list[dict[str, Any]]:
    run = ludus.collect("mcqa", model=ScriptedModel(lambda _: text), input=rows)
    return [orjson.loads(rollout.encode()) for rollout in run.rollouts]


def verified(path: Path, lines: list[bytes], given: dict[str, str] | None = None) -> list[dict[str, Any]]:
    source, output = path / "rollouts.jsonl", path / "verified.jsonl"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    assert rescore(source, "mcqa", output=output, settings=given or {}).counts["failed"] == 0
    found = [json.loads(line) for line in output.read_bytes().splitlines()]
    output.unlink()
    return found


def test_rows_with_one_task_id_and_other_fields_are_scored_with_their_own_fields(tmp_path: Path):
    rows = collected([row(answer) for answer in "ABAB"])
    given = [{**each, "task_id": "same", "reward": 0.5} for each in rows]
    found = verified(tmp_path, [orjson.dumps(each) for each in given])
    assert [each["reward"] for each in found] == [0.0, 1.0, 0.0, 1.0]
    assert len({each["receipt"] for each in found}) == 2


def test_repeats_that_alternate_with_those_of_many_other_tasks_keep_their_receipts(tmp_path: Path):
    rows = collected([row(letter, number=number) for number, letter in enumerate("ABCD" * 50)])
    lines = [orjson.dumps(each) for each in [*rows, *rows, *[each for each in rows for _ in range(3)]]]
    assert verified(tmp_path, lines) == [orjson.loads(line) for line in lines]


VALUES = st.recursive(
    st.sampled_from(["receipt", '"receipt":"x"', "\\", "text"]) | st.integers(2**63, 2**70) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["receipt", "a"]), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["note", "more"]), VALUES), st.booleans(), st.booleans(), st.booleans())
def test_another_verifier_with_the_same_verdict_changes_only_the_receipt(
    tmp_path: Path, fields: dict[str, Any], quotes: bool, spaced: bool, twice: bool
):
    [made] = collected([row()])
    text = rf'My "receipt":"{made["receipt"]}" says \boxed{{B}}' if quotes else r"\boxed{B}"
    made["response"]["output"][0]["content"][0]["text"] = text
    line = json.dumps({**made, **fields}, separators=None if spaced else (",", ":")).encode()
    [before] = verified(tmp_path, [line])
    if twice:
        before = {"more": {"receipt": before["receipt"]}, **before}
    line = json.dumps(before, separators=None if spaced else (",", ":")).encode()
    [after] = verified(tmp_path, [line], OTHER_VERIFIER)
    assert after.pop("receipt") != before.pop("receipt")
    assert after == before
