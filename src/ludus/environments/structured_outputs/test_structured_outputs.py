"""Structured outputs: five formats and function calls, checked against ordinary and hostile schemas."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, Verdict
from ludus.environments.structured_outputs import resources
from ludus.environments.structured_outputs.checking import SHORT
from ludus.environments.structured_outputs.resources import StructuredOutputs
from ludus.response import function_call, message, reasoning, texts_of
from ludus.runtime.processes import ProcessPool, shared_pool
from ludus.testing import disagreements, judge, shared_rows

NAME = "structured_outputs"
LAMP = {"type": "object", "properties": {"room": {"type": "string"}, "watts": {"type": "integer"}}}
ROWS = {"type": "array", "items": LAMP}
HOUSE = {"type": "object", "properties": {"lamp": LAMP}}
FITTING = '{"room": "hall", "watts": 9}'


def row(schema: Any = LAMP, **fields: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"responses_create_params": {"input": "Describe the lamp."}, "schema_str": text, **fields}


async def graded(answer: str | Response, task: dict[str, Any] | None = None, **settings: Any) -> Verdict:
    verdict = await judge(NAME, task or row(), answer, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


async def error(answer: str | Response, task: dict[str, Any] | None = None, **settings: Any) -> str | None:
    verdict = await graded(answer, task, **settings)
    kind: str | None = verdict.values["error_type"]
    assert verdict.reward == float(kind is None)
    return kind


def calling(arguments: Any, name: str = "save", **fields: Any) -> Response:
    return Response.of(message("I will."), function_call(name, arguments, call_id="c1"), **fields)


def test_only_a_fitting_answer_earns_the_reward() -> None:
    for text, reward in [(FITTING, 1.0), ('{"room": "hall"}', 0.0), ("No lamp here.", 0.0)]:
        rollout = ludus.collect(NAME, model=ScriptedModel([text]), input=[row()]).rollouts[0]
        assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, reward)


def test_the_shipped_rows_can_be_solved() -> None:
    answers: dict[str, Any] = {
        "Basil": '{"name": "basil", "height_cm": 45, "edible": true}',
        "The night": "from: Vienna\nto: Venice\nstops: [Villach, Udine]\nprice: null\n",
        "Mira": "<shop><owner>Mira</owner><product><label>kite</label><stock>3</stock></product></shop>",
        "The dash": 'title = "Tide"\n[server]\nport = 8080\ndebug = false\n',
        "Mars": "planet,moons,rings\nMars,2,false\nSaturn,146,true\n",
        "Coco": '{"pet": {"kind": "parrot", "words": ["hello", "biscuit"]}}',
        "Order": '{"sku": "KTL-0042", "quantity": 7}',
        "Take": Response.of(function_call("take_note", {"subject": "boiler", "urgent": True}, call_id="c")),
        "File": Response.of(function_call("file_report", {"report": {"subject": "n", "urgent": False}}, call_id="c")),
    }

    def oracle(request: Request) -> Any:
        question = texts_of(request.input[0])
        return next(answer for start, answer in answers.items() if question.startswith(start))

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 5
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * len(result.rollouts)


@pytest.mark.parametrize(
    ("format", "schema", "text", "expected"),
    [
        ("json", LAMP, FITTING, None),
        ("json", LAMP, FITTING.replace("9", "9.0"), None),
        ("json", LAMP, FITTING.replace("9", "true"), "validation_error"),
        ("json", LAMP, FITTING.replace("9", "9, 9"), "parse_error"),
        ("json", LAMP, f"```json\n{FITTING}\n```", "parse_error"),
        ("json", LAMP, '{"room": "hall", "watts": 9, "more": 1}', "validation_error"),
        ("yaml", LAMP, "room: hall\nwatts: 9\n", None),
        ("yaml", LAMP, "room: 2024-01-01\nwatts: 9\n", "validation_error"),
        ("yaml", LAMP, "room: hall\n\twatts: 9\n", "parse_error"),
        ("toml", LAMP, 'room = "hall"\nwatts = 9\n', None),
        ("toml", LAMP, "room = hall\nwatts = 9\n", "parse_error"),
        ("xml", HOUSE, "<lamp><room>hall</room><watts>9</watts></lamp>", None),
        ("xml", HOUSE, "<house><lamp><room>hall</room><watts>9</watts></lamp></house>", "validation_error"),
        ("xml", HOUSE, "<lamp><room>hall</room><watts>many</watts></lamp>", "validation_error"),
        ("xml", HOUSE, '<lamp id="1"><room>hall</room><watts>9</watts></lamp>', "validation_error"),
        ("xml", HOUSE, "<lamp><room>hall</room>", "parse_error"),
        ("csv", ROWS, "room,watts\nhall,9\nattic,4\n", None),
        ("csv", ROWS, "room,watts\nhall,dim\n", "validation_error"),
        ("csv", ROWS, "room,watts\nhall\n", "validation_error"),
        ("csv", ROWS, "room,watts\nhall,9,9\n", "validation_error"),
        ("json", LAMP, " \n", "empty_response"),
        ("json", "{", FITTING, "schema_error"),
        ("json", {"type": "lamp"}, FITTING, "validation_error"),
    ],
)
async def test_each_format_is_parsed_and_validated(format: str, schema: Any, text: str, expected: str | None) -> None:
    task = row(schema, schema_type=format)
    assert await error(text, task) == expected
    assert await error(text, task, compat=True) == expected


async def test_xml_without_coercion_holds_only_text() -> None:
    task = row(HOUSE, schema_type="xml")
    text = "<lamp><room>hall</room><watts>9</watts></lamp>"
    assert await error(text, task, xml_coerce_types=False) == "validation_error"


@pytest.mark.parametrize(
    ("answer", "fields", "expected"),
    [
        (calling(FITTING), {}, None),
        (calling(FITTING), {"tool_name": None}, None),
        (calling(FITTING, name="other"), {}, "wrong_tool_name"),
        (calling(FITTING, name="other"), {"tool_name": None}, None),
        (calling("{"), {}, "tool_arguments_parse_error"),
        (calling('{"room": 1, "watts": 9}'), {}, "validation_error"),
        (calling({"lamp": {"room": "hall", "watts": 9}}), {"tool_payload_key": "lamp"}, None),
        (calling({"lamp": {"room": "hall"}}), {"tool_payload_key": "lamp"}, "validation_error"),
        (calling(FITTING), {"tool_payload_key": "lamp"}, "missing_tool_payload_key"),
        (calling("[]"), {"tool_payload_key": "lamp"}, "missing_tool_payload_key"),
        (Response.of(message(FITTING)), {}, "missing_tool_call"),
        (Response.of(*[function_call("save", FITTING, call_id=c) for c in "ab"]), {}, "multiple_tool_calls"),
        (calling(FITTING, error={"code": "server_error"}), {}, "api_error"),
        (calling(FITTING), {"schema_str": "{"}, "schema_error"),
    ],
)
async def test_in_tool_call_mode_the_only_call_is_the_answer(
    answer: Response, fields: dict[str, Any], expected: str | None
) -> None:
    task = {**row(response_mode="tool_call", tool_name="save"), **fields}
    assert await error(answer, task) == expected
    assert await error(answer, task, compat=True) == expected


@pytest.mark.parametrize("compat", [False, True])
async def test_a_null_response_mode_is_text_and_an_empty_name_is_no_name(compat: bool) -> None:
    assert await error(FITTING, row(response_mode=None), compat=compat) is None
    assert await error(calling(FITTING), row(response_mode=None), compat=compat) == "parse_error"
    task = row(response_mode="tool_call", tool_name="", tool_payload_key="")
    assert await error(calling(FITTING, name="other"), task, compat=compat) is None
    assert await error(calling("{}", name="other"), task, compat=compat) == "validation_error"


@pytest.mark.parametrize("compat", [False, True])
async def test_numbers_in_a_table_may_be_written_as_a_power_or_be_infinite(compat: bool) -> None:
    table = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}}
    task = row(table, schema_type="csv")
    assert await error("n\n1e3\ninf\n-inf\n2.5\n", task, compat=compat) is None
    assert await error("n\n1e3\nmany\n", task, compat=compat) == "validation_error"


def test_no_call_is_ever_run() -> None:
    task = row(response_mode="tool_call", tool_name="save")
    rollout = ludus.collect(NAME, model=ScriptedModel([calling(FITTING)]), input=[task]).rollouts[0]
    assert (rollout.reward, rollout.stop_reason, len(rollout.calls)) == (1.0, "completed", 1)


EITHER = {"type": "object", "properties": {"v": {"anyOf": [LAMP, {"type": "object", "properties": {"n": {}}}]}}}


async def test_objects_inside_a_union_are_strict_except_in_compat() -> None:
    for text in ('{"v": {}}', '{"v": {"other": 1}}', '{"v": {"n": 1, "other": 1}}'):
        assert await error(text, row(EITHER)) == "validation_error"
        assert await error(text, row(EITHER), compat=True) is None
    assert await error('{"v": {"n": 1}}', row(EITHER)) is None


async def test_an_answer_fits_one_of_two_object_schemas_except_in_compat() -> None:
    task = row({"oneOf": [LAMP, {"type": "object", "properties": {"n": {}}}]})
    assert await error('{"n": 1}', task) is None
    assert await error('{"n": 1}', task, compat=True) == "validation_error"


async def test_a_condition_is_not_made_strict_except_in_compat() -> None:
    condition = {"if": {"properties": {"room": {"const": "hall"}}}, "then": {"properties": {"watts": {"minimum": 10}}}}
    task = row({**LAMP, **condition})
    assert await error(FITTING, task) == "validation_error"
    assert await error(FITTING, task, compat=True) is None


async def test_a_property_may_be_called_properties_except_in_compat() -> None:
    task = row({"type": "object", "properties": {"properties": {"type": "string"}}})
    assert await error('{"properties": "x"}', task) is None
    assert await error('{"properties": "x"}', task, compat=True) == "validation_error"


@pytest.mark.parametrize("text", ["room,watts\n", "room,watts", "Here is your table!", "\n"])
async def test_a_table_without_records_does_not_fit_except_in_compat(text: str) -> None:
    task = row(ROWS, schema_type="csv")
    expected = "validation_error" if text.strip() else "empty_response"
    assert await error(text, task) == expected
    if text.strip():
        assert await error(text, task, compat=True) is None


async def test_xml_references_are_coerced_except_in_compat() -> None:
    referred = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    task = row(referred, schema_type="xml")
    assert await error("<n>5</n>", task) is None
    assert await error("<n>5</n>", task, compat=True) == "validation_error"


@pytest.mark.parametrize("compat", [False, True])
async def test_an_xml_element_of_several_types_stays_text(compat: bool) -> None:
    optional = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}
    task = row(optional, schema_type="xml")
    assert await error("<n>5</n>", task, compat=compat) == "validation_error"
    assert await error("<n/>", task, compat=compat) is None


async def test_python_spellings_of_numbers_are_not_numbers_except_in_compat() -> None:
    task = row({"type": "object", "properties": {"n": {"type": "number"}}}, schema_type="xml")
    for text in ("<n>1_000</n>", "<n>nan</n>", "<n>Infinity</n>"):
        assert await error(text, task) == "validation_error"
        assert await error(text, task, compat=True) is None


@pytest.mark.parametrize(
    ("schema", "format", "why"),
    [
        ("{", "json", "the schema is not JSON"),
        ({"type": "lamp"}, "json", "the schema is not valid"),
        (LAMP, "csv", "csv can only hold an array and the schema asks for another type"),
        (ROWS, "toml", "toml can only hold an object and the schema asks for another type"),
    ],
)
async def test_a_row_that_no_answer_can_fit_is_masked_except_in_compat(schema: Any, format: str, why: str) -> None:
    task = row(schema, schema_type=format)
    assert (await graded("a = 1", task)).mask == why
    assert (await graded("a = 1", task, compat=True)).mask is None


@pytest.mark.parametrize(
    "fields",
    [{"schema_str": None}, {"schema_str": {}}, {"schema_type": "ini"}, {"response_mode": "both"}, {"tool_name": 1}],
)
async def test_a_bad_row_is_refused(fields: dict[str, Any]) -> None:
    verdict = await judge(NAME, {**row(), **fields}, FITTING)
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


async def test_only_the_text_of_messages_counts() -> None:
    assert await error(Response.of(reasoning(FITTING))) == "empty_response"
    assert await error(Response.of(message(FITTING[:5]), message(FITTING[5:]))) is None
    assert await error(Response({})) == "empty_response"


async def test_a_pattern_that_runs_too_long_is_a_timeout_and_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "SECONDS", 0.5)
    task = row({"type": "object", "properties": {"room": {"type": "string", "pattern": "^(a+)+$"}}})
    judging = asyncio.create_task(judge(NAME, task, json.dumps({"room": "a" * 60 + "b"})))
    turns = 0
    while not judging.done():
        await asyncio.sleep(0)
        turns += 1
    verdict = await judging
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.stage) == ("timeout", "verify")
    assert turns > 10, "on the loop it would be one"


async def test_a_long_answer_is_checked_in_a_child_process() -> None:
    lamps = json.dumps([{"room": "hall", "watts": 9}] * 500)
    assert len(lamps) > SHORT
    assert await error(lamps, row(ROWS)) is None
    assert await error(lamps.replace("9}]", "9.5}]"), row(ROWS)) == "validation_error"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "-" * 100_000, "<a>" * 30_000, "- " * 50_000])
async def test_hostile_answers_earn_nothing(text: str) -> None:
    async with shared_pool():  # keeps one child process for all formats
        for format in ("json", "yaml", "xml", "toml", "csv"):
            assert await error(text, row(schema_type=format)) in ("parse_error", "validation_error")


async def test_a_short_answer_is_checked_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessPool, "run", None)
    fields = {f"field_{number}": {"type": "string"} for number in range(20)}
    schema = {"type": "object", "properties": {**fields, "lamps": ROWS}}
    value = {**dict.fromkeys(fields, "some words"), "lamps": [{"room": "hall", "watts": 9}] * 5}
    assert await error(json.dumps(value), row(schema)) is None
    assert await error(json.dumps({**value, "lamps": 1}), row(schema)) == "validation_error"


def test_public_rows_load() -> None:
    assert [StructuredOutputs.Task.model_validate(task) for task in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    async with shared_pool():  # keeps the child processes for all lines
        assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    async with shared_pool():
        assert await disagreements(NAME, compat=True) == []
