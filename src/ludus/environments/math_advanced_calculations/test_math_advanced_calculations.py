"""Altered arithmetic: what the tools return, and that only returned results earn the reward."""

from __future__ import annotations

import ast
import asyncio
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import ludus
from ludus import Environment, Failure, Outcome, Response, ScriptedModel, Verdict
from ludus.environments.math_advanced_calculations.operations import OPERATIONS, compute
from ludus.environments.math_advanced_calculations.resources import FREE_CALLS, AlteredArithmetic
from ludus.response import function_call, function_call_output, message, texts_of
from ludus.testing import disagreements, judge, replay, shared_rows

NAME = "math_advanced_calculations"
Call = tuple[str, dict[str, Any]]
ADD: Call = ("add", {"a": 2, "b": 3})


def row(*results: Any, **fields: Any) -> dict[str, Any]:
    truth = json.dumps(results)
    asked = {"responses_create_params": {"input": "Work out (2 + 3)."}, "id": 0, "depth": 1, "breadth": 1}
    return {**asked, "ground_truth": truth, **fields}


def play(*turns: Any, asked: dict[str, Any] | None = None) -> ludus.Rollout:
    return ludus.collect(NAME, model=ScriptedModel([*turns, "Done."]), input=[asked or row(6.2)]).rollouts[0]


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


async def output(name: str, arguments: Any, **settings: Any) -> Any:
    """The output that the model sees, decoded."""
    line = {"kind": "tool", "row": row(), "calls": [{"name": name, "arguments": arguments}]}
    (text,) = await replay(NAME, line, **settings)
    return json.loads(text)


async def verdict(response: Response, asked: dict[str, Any], **settings: Any) -> Verdict:
    outcome = await judge(NAME, asked, response, **settings)
    assert isinstance(outcome, Verdict), outcome
    return outcome


def answered(output: Any, call: Call = ADD, id: str = "call_1") -> Response:
    """A transcript with one call and its recorded output."""
    return Response.of(function_call(*call, call_id=id), function_call_output(id, json.dumps(output)), message("Done."))


@pytest.mark.parametrize(
    ("name", "numbers", "result"),
    [
        ("add", (2, 3), 6.2),
        ("add", (0.1, 0.2), (0.1 + 0.2) + 1.2),
        ("subtract", (2, 3), -4.0),
        ("multiply", (0.3, 7), (1.1 * 0.3) * 7),
        ("divide", (0.3, 7), (0.5 * 0.3) / 7),
        ("power", (2, 3), 32.0),
        ("power", (2, -2), 1.0),
        ("log", (10, -3), math.log(10) / math.log(1.5)),
        ("sin", (5,), math.cos(5)),
        ("cos", (5,), math.sin(5)),
        ("pi", (), 2.718281828459045),
        ("negate", (3.5,), 3.5),
        ("return_constant", (3.5,), 3.5),
    ],
)
async def test_a_tool_returns_its_altered_operation_to_the_last_bit(
    name: str, numbers: tuple[float, ...], result: float
) -> None:
    parameters = AlteredArithmetic.toolbox[name].schema()["parameters"]["properties"]
    arguments = dict(zip(parameters, numbers, strict=True))
    for compat in (False, True):
        assert await output(name, arguments, compat=compat) == {"solution": result}


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("divide", {"a": 1, "b": 0}, "float division by zero"),
        ("log", {"a": 0, "base": 2}, "math domain error"),
        ("log", {"a": 2, "base": -1.5}, "math domain error"),
        ("log", {"a": 2, "base": -0.5}, "float division by zero"),
        ("power", {"a": 0, "b": -3}, "0.0 cannot be raised to a negative power"),
        ("power", {"a": 1e200, "b": 2}, "(34, 'Numerical result out of range')"),
        ("power", {"a": -1e200, "b": 2}, "(34, 'Numerical result out of range')"),
        ("power", {"a": -1e200, "b": 2.5}, "complex exponentiation"),
    ],
)
async def test_the_model_reads_why_a_result_cannot_be_computed(name: str, arguments: dict[str, Any], says: str) -> None:
    for compat in (False, True):
        assert await output(name, arguments, compat=compat) == {"detail": says}


async def test_a_complex_result_is_a_plain_error_except_in_compat() -> None:
    root = {"a": -4.5, "b": 2.25}
    assert await output("power", root) == {"detail": "the result is not a real number"}
    raw = await output("power", root, compat=True)
    assert "MultiVerseMathHardResponse" in raw["detail"]
    assert "input_value=(422.31663222420605+422.3166322242064j)" in raw["detail"]
    long = (await output("power", {"a": -1.23456789e77, "b": 1.3}, compat=True))["detail"]
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(float).validate_python((-1.23456789e77) ** 3.3)
    assert "..." in long
    assert long.splitlines()[2] == str(caught.value).splitlines()[1]


async def test_an_infinite_result_is_an_error_and_null_in_compat() -> None:
    for name, arguments in [("multiply", '{"a": 1e200, "b": 1e200}'), ("return_constant", '{"a": 1e999}')]:
        assert await output(name, arguments) == {"detail": "(34, 'Numerical result out of range')"}
        assert await output(name, arguments, compat=True) == {"solution": None}
    for name in ("sin", "cos"):
        assert await output(name, '{"radians": 1e999}') == {"detail": "math domain error"}


async def test_texts_and_booleans_are_not_numbers_except_in_compat() -> None:
    for value in ("2", True):
        refused = await output("divide", {"a": value, "b": 2})
        assert refused["detail"][0]["loc"] == ["body", "a"]
    assert await output("divide", {"a": True, "b": 2}, compat=True) == {"solution": 0.25}
    assert await output("divide", {"a": "2", "b": 2}, compat=True) == {"solution": 0.5}
    for compat in (False, True):
        refused = await output("divide", {"a": [1], "b": 2}, compat=compat)
        assert refused["detail"][0]["msg"] == "Input should be a valid number"


async def test_a_missing_argument_is_named_and_compat_shows_pythons_message() -> None:
    refused = await output("divide", {"a": 1})
    assert refused["detail"] == [{"type": "missing", "loc": ["body", "b"], "msg": "Field required", "input": {"a": 1}}]
    for arguments in ({"a": 1}, {"a": 1, "b": None}):
        raw = await output("divide", arguments, compat=True)
        assert raw == {"detail": "divide() missing 1 required positional argument: 'b'"}
    raw = await output("add", {"a": 1, "b": 2, "radians": 3}, compat=True)
    assert raw == {"detail": "add() got an unexpected keyword argument 'radians'"}


async def test_an_unknown_tool_is_not_found_even_if_it_is_the_name_of_a_method() -> None:
    for name in ("sqrt", "verify", "_solution", "__init__", ""):
        for compat in (False, True):
            assert await output(name, {}, compat=compat) == {"detail": "Function not found"}


async def test_a_malformed_call_gets_an_answer_without_a_solution() -> None:
    for arguments in ("oops", "[1]", "5", '{"a": 1', '{"a": {}, "b": 1}'):
        for compat in (False, True):
            assert not (await output("add", arguments, compat=compat)).keys() & {"solution"}


def test_returning_every_result_earns_the_reward_whatever_the_model_says() -> None:
    assert play(called("add", a=2, b=3)).reward == 1.0
    assert play(called("divide", a=1, b=0), called("add", a=2, b=3)).reward == 1.0
    rollout = play(called("pi"), called("add", a=2, b=3), asked=row(6.2, math.e, 6.2))
    assert (rollout.reward, rollout.to_row()["calls"], rollout.to_row()["missing"]) == (1.0, 2, [])


def test_a_result_that_no_tool_returned_earns_nothing_whatever_the_model_says() -> None:
    assert play("The result is 6.2.").reward == 0.0
    assert play('{"solution": 6.2}').reward == 0.0
    assert play(called("add", a=2, b=3.0000001)).reward == 0.0
    assert play(called("divide", a=1, b=0)).reward == 0.0
    partly = play(called("add", a=2, b=3), asked=row(6.2, 9.9))
    assert (partly.reward, partly.to_row()["missing"]) == (0.0, [9.9])


def test_a_tool_that_the_row_does_not_offer_earns_nothing() -> None:
    asked = row(6.2)
    asked["responses_create_params"]["tools"] = [AlteredArithmetic.toolbox["pi"].schema()]
    assert play(called("add", a=2, b=3), asked=asked).reward == 0.0


def test_concurrent_rollouts_do_not_see_each_others_results() -> None:
    def half(request: ludus.Request) -> Any:
        wrong = (request.seed or 0) % 2
        return "Done." if request.turn else called("add", a=2, b=3 + wrong)

    result = ludus.collect(NAME, model=ScriptedModel(half), input=[row(6.2)], repeats=40, concurrency=40)
    assert all(rollout.reward == float(rollout.job.seed % 2 == 0) for rollout in result.rollouts)
    assert {rollout.reward for rollout in result.rollouts} == {0.0, 1.0}


def test_guessing_until_a_number_fits_earns_nothing() -> None:
    guesses = [{"name": "return_constant", "arguments": {"a": number / 10}} for number in range(100)]
    rollout = play({"calls": guesses})
    assert (rollout.reward, rollout.to_row()["guessing"]) == (0.0, True)
    few = [{"name": "pi"}] * FREE_CALLS
    assert play({"calls": few}, called("add", a=2, b=3)).reward == 1.0
    assert play({"calls": guesses}, asked=row(6.2, depth=6)).reward == 1.0


async def test_guessing_is_rewarded_in_compat() -> None:
    calls = [function_call("return_constant", {"a": number / 10}, call_id=f"call_{number}") for number in range(100)]
    outputs = [function_call_output(call["call_id"], json.dumps({"solution": n / 10})) for n, call in enumerate(calls)]
    response = Response.of(*calls, *outputs)
    assert (await verdict(response, row(6.2))).reward == 0.0
    assert (await verdict(response, row(6.2), compat=True)).reward == 1.0


async def test_a_forged_output_of_a_call_does_not_count_except_in_compat() -> None:
    forged = answered({"solution": 99.5})
    assert (await verdict(forged, row(99.5))).reward == 0.0
    assert (await verdict(forged, row(99.5), compat=True)).reward == 1.0
    assert (await verdict(answered({"detail": "Not Found"}), row(6.2))).reward == 1.0  # the tool said otherwise


async def test_an_output_that_answers_no_call_masks_the_rollout_except_in_compat() -> None:
    alone = Response.of(function_call_output("zzz", '{"solution": 6.2}'), message("Done."))
    assert ((await verdict(alone, row(6.2))).mask or "").startswith("a result stands in an output")
    assert (await verdict(alone, row(6.2), compat=True)).mask is None
    assert (await verdict(alone, row(9.9))).reward == 0.0
    beside = Response.of(*answered({"solution": 6.2}).output, function_call_output("zzz", "oops"))
    assert (await verdict(beside, row(6.2))).mask is None
    item = {"type": "function_call_output", "call_id": "call_7", "output": '{"solution": 6.2}'}
    rollout = await asyncio.to_thread(play, {"items": [item], "text": "Done."})
    assert rollout.outcome is Outcome.MASKED


async def test_a_row_that_asks_for_no_result_is_refused_before_the_model_is_asked_except_in_compat() -> None:
    empty: list[Any] = ["[]", []]
    for truth in empty:
        failure = await judge(NAME, row(ground_truth=truth), answered({"solution": 6.2}))
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.stage) == ("bad_row", "open")
    rollout = await asyncio.to_thread(play, called("add", a=2, b=3), asked=row())
    assert (rollout.reward, rollout.error and rollout.error.kind, rollout.calls) == (None, "bad_row", [])
    assert (await verdict(answered({"solution": 6.2}), row(), compat=True)).reward == 1.0


@pytest.mark.parametrize("truth", ["oops", "", "[NaN]", "[1e999]", "[true]", "[null]", '["6.2"]', "6.2", "{}", "[[1]]"])
async def test_a_ground_truth_that_no_tool_could_return_is_a_bad_row(truth: str) -> None:
    failure = await judge(NAME, row(ground_truth=truth), "Done.")
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"
    with pytest.raises(ludus.UserError, match="ground_truth"):
        await asyncio.to_thread(play, asked=row(ground_truth=truth))


async def test_compat_compares_any_list_in_json_and_fails_on_everything_else() -> None:
    solved, unsolved = answered({"solution": 1}), answered({"detail": "no"})
    assert (await verdict(solved, row(ground_truth="[true]"), compat=True)).reward == 1.0
    assert (await verdict(solved, row(ground_truth="[null]"), compat=True)).reward == 0.0
    assert (await verdict(unsolved, row(ground_truth="[null]"), compat=True)).reward == 1.0
    for truth in ("oops", "6.2", [6.2]):
        failure = await judge(NAME, row(ground_truth=truth), solved, compat=True)
        assert isinstance(failure, Failure)
        assert failure.kind == "bad_row"


async def test_a_ground_truth_may_be_a_list_where_the_reference_fails() -> None:
    assert (await verdict(answered({"solution": 6.2}), row(ground_truth=[6.2]))).reward == 1.0
    assert (await verdict(answered({"solution": 6.2}), row(ground_truth=[9.9]))).reward == 0.0


async def test_a_large_whole_number_is_compared_as_a_float_except_in_compat() -> None:
    large = answered({"solution": 10000000000000001}, ("return_constant", {"a": 10000000000000001}))
    for truth, compat in [("[10000000000000001]", 0.0), ("[10000000000000000]", 1.0)]:
        assert (await verdict(large, row(ground_truth=truth))).reward == 1.0
        assert (await verdict(large, row(ground_truth=truth), compat=True)).reward == compat


@pytest.mark.parametrize("text", ["oops", "5", "[]", '{"solution": null}', '{"solution": "x"}', "{" * 10_000, None])
async def test_an_output_without_a_solution_is_not_a_result(text: Any) -> None:
    response = Response.of({"type": "function_call_output", "call_id": "zzz", "output": text})
    for compat in (False, True):
        assert (await verdict(response, row(6.2), compat=compat)).reward == 0.0


numbers = st.floats(allow_nan=False) | st.integers(-10, 10).map(float)


@given(st.sampled_from(sorted(OPERATIONS)), numbers, numbers)
def test_every_operation_returns_a_finite_number_or_raises_an_error(name: str, a: float, b: float) -> None:
    count = len(AlteredArithmetic.toolbox[name].schema()["parameters"]["properties"])
    with suppress(ArithmeticError, ValueError):
        assert math.isfinite(compute(name, *(a, b)[:count]))


def test_the_schemas_do_not_reveal_the_altered_operations() -> None:
    tools = Environment.load(NAME).resources.toolbox.values()
    assert len(tools) == len(OPERATIONS) == 11
    assert all(entry.schema()["strict"] for entry in tools)
    texts = " ".join(json.dumps(entry.schema()) for entry in tools)
    assert not any(word in texts for word in ("1.2", "1.1", "0.5", "1.5", "not "))


_SYMBOLS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power"}


def evaluated(node: ast.expr) -> float:
    """The value by our operations of an expression as the public rows write it."""
    match node:
        case ast.Constant(value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name(name):
            return compute(name)
        case ast.Call(ast.Name(name), arguments):
            return compute(name, *map(evaluated, arguments))
        case ast.UnaryOp(_, operand):
            return compute("negate", evaluated(operand))
        case ast.BinOp(left, symbol, right):
            return compute(_SYMBOLS[type(symbol)], evaluated(left), evaluated(right))
    raise ValueError(ast.dump(node))


def test_our_operations_give_the_ground_truth_of_public_rows_to_the_last_bit() -> None:
    rows = [AlteredArithmetic.Task.model_validate(row) for row in shared_rows(NAME)]
    assert rows
    for task in rows:
        asked = texts_of(task.input[0]).partition(" for ")[2].removesuffix(" using only the given tools.")
        tree = ast.parse(asked.replace(", and ", ", "), mode="eval").body
        expressions = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        assert [evaluated(expression) for expression in expressions] == task.results


async def test_verdicts_and_outputs_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []
