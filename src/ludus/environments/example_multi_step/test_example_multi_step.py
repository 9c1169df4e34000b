"""Synonyms: only the last submission counts, and it must be exact and in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Failure, Request, Response, ScriptedModel, Verdict
from ludus.environments.example_multi_step.resources import Synonyms
from ludus.response import function_call, texts_of
from ludus.testing import disagreements, judge, shared_rows

NAME = "example_multi_step"
ROW: dict[str, Any] = {
    "id": 7,
    "responses_create_params": {"input": "wet: damp\nwet: moist\nHow wet is the grass?"},
    "expected_synonyms": ["damp", "moist"],
    "expected_synonym_values": [418, 556],
    "minefield_label": "wet",
    "minefield_label_value": 336,
}


async def submit(*arguments: Any, row: dict[str, Any] = ROW, **settings: Any) -> Verdict:
    """The verdict on a response that submits each of the arguments in turn."""
    calls = [
        function_call(
            "extract_synonym_values", text if isinstance(text, str) else {"synonym_values": text}, call_id=str(n)
        )
        for n, text in enumerate(arguments)
    ]
    verdict = await judge(NAME, row, Response.of(*calls), **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


def looks_up_and_submits(request: Request) -> Any:
    """An honest oracle: it finds the word in the question, looks up its synonyms, and submits the returned values."""
    lines = "\n".join(texts_of(item) for item in request.input if item.get("role") in ("system", "user")).splitlines()
    pairs = [line.split(": ") for line in lines if line.count(": ") == 1 and " " not in line.replace(": ", "")]
    synonyms = [synonym for word, synonym in pairs if word in lines[-1].replace("?", "").split(" ")]
    if request.turn < len(synonyms):
        return {"call": "get_synonym_value", "arguments": {"synonym": synonyms[request.turn]}}
    if request.turn > len(synonyms):
        return "Done."
    outputs = [json.loads(item["output"]) for item in request.input if item.get("type") == "function_call_output"]
    values = [output["synonym_value"] for output in outputs]
    return {"call": "extract_synonym_values", "arguments": {"synonym_values": values}}


def test_looking_up_and_submitting_earns_the_reward() -> None:
    rollout = ludus.collect(NAME, model=ScriptedModel(looks_up_and_submits), input=[ROW]).rollouts[0]
    assert rollout.reward == 1.0
    assert rollout.to_row()["parsed_synonym_values"] == [418, 556]


def test_the_example_rows_can_be_solved() -> None:
    result = ludus.collect(NAME, model=ScriptedModel(looks_up_and_submits))
    assert len(result.rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in result.rollouts)


async def test_the_last_submission_counts() -> None:
    assert (await submit([1], [418, 556])).reward == 1.0
    assert (await submit([418, 556], [1])).reward == 0.0


async def test_values_in_a_message_are_not_a_submission() -> None:
    verdict = await judge(NAME, ROW, "418, 556")
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 0.0
    assert verdict.values == {
        "parsed_synonym_values": [],
        "accuracy": False,
        "set_overlap": 0.0,
        "original_term_minefield_hit": False,
        "order_instruction_following_failure": False,
    }


@pytest.mark.parametrize(
    ("values", "overlap", "order_failure"),
    [([556, 418], 1.0, True), ([418, 556, 9], 1.0, True), ([418], 0.5, False), ([], 0.0, False)],
)
async def test_a_wrong_list_earns_nothing_and_the_verdict_says_why(
    values: list[int], overlap: float, order_failure: bool
) -> None:
    verdict = await submit(values)
    assert verdict.reward == 0.0
    assert verdict.values["set_overlap"] == overlap
    assert verdict.values["order_instruction_following_failure"] is order_failure


async def test_the_verdict_records_the_value_of_the_word_itself() -> None:
    assert (await submit([336, 418, 556])).values["original_term_minefield_hit"] is True
    assert (await submit([418, 556])).values["original_term_minefield_hit"] is False


async def test_a_float_with_a_whole_value_counts_as_that_integer() -> None:
    verdict = await submit('{"synonym_values": [418.0, 556]}')
    assert verdict.reward == 1.0
    assert verdict.values["parsed_synonym_values"] == [418, 556]


async def test_numbers_as_text_earn_nothing() -> None:
    verdict = await submit(["418", "556"])
    assert verdict.reward == 0.0
    assert verdict.values["parsed_synonym_values"] == [418, 556]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "not JSON",
        "[418, 556]",
        "{}",
        '{"synonym_values": null}',
        '{"synonym_values": 418}',
        '{"synonym_values": {"418": 556}}',
        '{"synonym_values": [[418], [556]]}',
        '{"synonym_values": [418.5, 556]}',
        '{"synonym_values": ["wet", 556]}',
        '{"synonym_values": [NaN, Infinity]}',
        '{"synonym_values": [1e999]}',
        '{"synonym_values": [' + "9" * 5000 + "]}",
        '{"synonym_values": ' + "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
@pytest.mark.parametrize("compat", [False, True])
async def test_a_submission_that_is_not_a_list_of_integers_counts_as_empty(arguments: str, compat: bool) -> None:
    for submitted in ([arguments], [[418, 556], arguments]):
        verdict = await submit(*submitted, compat=compat)
        assert verdict.reward == 0.0
        assert verdict.values["parsed_synonym_values"] == []


async def test_true_is_not_1_except_in_compat() -> None:
    row = {**ROW, "expected_synonym_values": [1, 556]}
    assert (await submit([True, 556], row=row)).reward == 0.0
    assert (await submit([True, 418, 556])).reward == 0.0
    assert (await submit([True, 556], row=row, compat=True)).reward == 1.0


async def test_a_tool_call_with_text_for_numbers_is_refused_except_in_compat() -> None:
    arguments = '{"synonym_values": ["1"]}'
    assert "detail" in json.loads(await Synonyms().call("extract_synonym_values", arguments))
    lenient = Synonyms(Synonyms.Config(compat=True))
    assert json.loads(await lenient.call("extract_synonym_values", arguments)) == {"success": True}


async def test_any_text_has_a_value() -> None:
    for text, value in [("", 0), ("wet", 336), ("\u00e9", 233), ("\U0001f600", 128512)]:
        output = await Synonyms().call("get_synonym_value", json.dumps({"synonym": text}))
        assert json.loads(output) == {"synonym_value": value}


@pytest.mark.parametrize("field", [field for field in ROW if field != "responses_create_params"])
async def test_a_row_without_a_required_field_is_refused(field: str) -> None:
    verdict = await judge(NAME, {key: value for key, value in ROW.items() if key != field}, "x")
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.cause) == ("bad_row", f"{field}: Field required")


async def test_a_row_without_expected_values_is_refused() -> None:
    verdict = await judge(NAME, {**ROW, "expected_synonym_values": []}, "x")
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


async def test_a_row_with_text_for_numbers_is_refused_except_in_compat() -> None:
    row = {**ROW, "expected_synonym_values": ["418", "556"]}
    assert isinstance(await judge(NAME, row, "x"), Failure)
    assert (await submit([418, 556], row=row, compat=True)).reward == 1.0


def test_public_rows_load() -> None:
    assert [Synonyms.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_and_outputs_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_also_in_its_mistakes() -> None:
    assert await disagreements(NAME, compat=True) == []
