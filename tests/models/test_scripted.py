"""Scripts: valid turns are played, and invalid ones are refused with a clear error."""

from __future__ import annotations

import pytest

from ludus import ScriptedModel, UserError
from ludus.errors import Failure
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Response, message


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "a turn is a text or a mapping, not NoneType"),
        (["a", "b"], "not list"),
        (b"bytes", "not bytes"),
        ((each for each in "ab"), "not generator"),
        ({"txt": "a"}, "a turn has no key txt. Known: arguments, call, calls"),
        ({"call": 5}, "call must be the name of a tool, not 5"),
        ({"calls": [{"arguments": {}}]}, "calls must be a list of {name: ..., arguments: ...}"),
        ({"error": "busy"}, "error must be written {kind: ..., cause: ...}, not 'busy'"),
    ],
)
async def test_a_function_that_returns_an_invalid_turn_is_a_bad_response(result, says):
    async def later(request):
        return result

    for function in (lambda request: result, later):
        with pytest.raises(Failure) as caught:
            await ScriptedModel(function).respond(Request("?"))
        assert caught.value.kind == "bad_response"
        assert says in caught.value.cause


async def test_an_async_generator_is_not_a_valid_turn():
    async def yields(request):
        yield "a"

    with pytest.raises(Failure, match="not async_generator"):
        await ScriptedModel(yields).respond(Request("?"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {whne: Oslo, turns: [a]}", "a rule has no key whne. Known: turns, when"),
        ("- {when: null, turns: [a]}", "when must be a text, not None"),
        ("- call: 5", "call must be the name of a tool, not 5"),
        ("- error: busy", "error must be written {kind: ..., cause: ...}, not 'busy'"),
        ("- delay: soon", "delay must be a number of seconds, not 'soon'"),
        ("- delay: -1", "delay must be a number of seconds, not -1"),
        ("- calls: {name: x}", "calls must be a list of {name: ..., arguments: ...}, not {'name': 'x'}"),
        ("- items: [a]", "items must be a list of items, not ['a']"),
        ("- incomplete: 5", "incomplete must be a reason, not 5"),
        ("- null", "a turn is a text or a mapping, not NoneType"),
        ("- [a]", "a turn is a text or a mapping, not list"),
        ("- turns: [{txt: a}]", "a turn has no key txt. Known: "),
    ],
)
def test_a_mistake_in_a_script_file_is_an_error_on_opening_the_model(tmp_path, text, says):
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        open_model(f"scripted:{path}")
    assert str(caught.value).startswith(f"scripted:{path}: {says}")


@pytest.mark.parametrize(
    ("turn", "kinds", "text"),
    [
        ("a", ["message"], "a"),
        (42, ["message"], "42"),
        ({"text": 4.5, "reasoning": "hm"}, ["reasoning", "message"], "4.5"),
        ({"call": "f"}, ["function_call"], ""),
        ({"call": "f", "arguments": "no json", "calls": None}, ["function_call"], ""),
        ({"calls": ({"name": "f"}, {"name": "g", "arguments": {}})}, ["function_call"] * 2, ""),
        ({"items": [{"type": "new"}], "delay": 0.0, "incomplete": "max_output_tokens"}, ["new"], ""),
        ({"delay": None, "error": None, "incomplete": None}, [], ""),
        ({}, [], ""),
        (Response.of(message("a")), ["message"], "a"),
    ],
)
async def test_a_turn_gives_the_same_answer_from_a_script_a_rule_and_a_function(turn, kinds, text):
    for script in ([turn], [{"when": "?", "turns": [turn]}], lambda request: turn):
        response = await ScriptedModel(script).respond(Request("?"))
        assert [item["type"] for item in response.output] == kinds
        assert response.output_text == text
