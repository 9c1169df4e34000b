"""The stub model: its delays, its answers, and the advice about a measured point."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_bench.advice import first_bottleneck
from ludus_bench.delays import LONGEST, Delay
from ludus_bench.profile.synthetic import SyntheticModel
from ludus_bench.stub_script import SyntheticScript

from ludus.errors import UserError
from ludus.model import Request

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    for name in ("add", "take")
]


@pytest.mark.parametrize("spec", ["0", "1", "0.5..1.5", "exp:1", "lognormal:1,0.5"])
def test_the_mean_of_drawn_delays_is_the_mean_of_the_distribution(spec: str) -> None:
    delay, random = Delay.parse(spec), Random(7)
    assert fmean(delay.draw(random) for _ in range(20_000)) == pytest.approx(delay.mean, rel=0.05)


@given(st.text(max_size=30) | st.from_regex(r"(exp:|lognormal:)?-?[0-9.e]{1,6}((\.\.|,)[0-9.e]{1,6})?", fullmatch=True))
def test_any_text_is_a_delay_within_bounds_or_a_user_error(text: str) -> None:
    with suppress(UserError):
        assert 0 <= Delay.parse(text).draw(Random(1)) <= LONGEST


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_the_stub_server_answers_what_the_synthetic_model_answers(turns: int) -> None:
    async def model_outputs() -> list[Any]:
        model = SyntheticModel(turns)
        return [list((await model.respond(Request("hi", turn=turn, tools=TOOLS))).output) for turn in range(3)]

    script, items, found = SyntheticScript(turns), list[Any]([{"role": "user", "content": "hi"}]), []
    for _ in range(3):
        answer = script.answer(b"POST", b"/v1/responses", json.dumps({"tools": TOOLS, "input": items}).encode())
        assert answer is not None
        assert answer.startswith(b"HTTP/1.1 200")
        output = json.loads(answer.partition(b"\r\n\r\n")[2])["output"]
        found.append(output)
        items += output
        calls = [item for item in output if item["type"] == "function_call"]
        items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "1"} for call in calls]
    expected = asyncio.run(model_outputs())
    asked = [output for output in found if output[0]["type"] == "function_call"]
    assert found[: turns + 1] == expected[: turns + 1]
    assert len(asked) == turns


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": 3}', b'{"input": [3]}'])
def test_the_stub_server_refuses_a_body_that_is_no_request(body: bytes) -> None:
    answer = SyntheticScript(1).answer(b"POST", b"/v1/responses", body)
    assert answer is not None
    assert answer.startswith(b"HTTP/1.1 400")


def point(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "workers": 1,
        "rollouts": 100,
        "failed": 0,
        "failures": {},
        "service_s": 2.0,
        "wait_s": 2.0,
        "model_delay_s": 2.0,
        "cores": {"collector": 0.2, "workers": 0.0, "busiest_stub": 0.1},
        "cpu_share": {"collector": 1.0, "workers": None},
        "stages_s": {"model": {"mean": 2.1}, "verify": {"mean": 1.9}},
    }
    return {**found, **changed}


@pytest.mark.parametrize(
    ("changed", "part", "says"),
    [
        ({"failed": 3, "failures": {"timeout": 3}}, "failures", "timeout"),
        ({"wait_s": 0.1}, "slots", "--in-flight"),
        ({"cores": {"collector": 0.5, "workers": 0, "busiest_stub": 0.95}}, "stub", "--stubs"),
        ({"cores": {"collector": 0.95, "workers": 0, "busiest_stub": 0.1}}, "collector", "--workers 4"),
        ({"workers": 4, "cores": {"collector": 0.2, "workers": 3.6, "busiest_stub": 0}}, "cores", "--ray"),
        ({"workers": 2, "cores": {"collector": 0.95, "workers": 1.0, "busiest_stub": 0}}, "collector", "--shard"),
        ({"cpu_share": {"collector": 0.5, "workers": None}}, "cores", "got one 50%"),
        ({"stages_s": {"model": {"mean": 3.9}, "verify": {"mean": 0.1}}}, "model", "2.00 s later"),
        ({}, "environment", "stage verify"),
    ],
)
def test_the_first_bottleneck_is_named_with_what_to_do(changed: dict[str, Any], part: str, says: str) -> None:
    found = first_bottleneck(point(**changed), cores=4)
    assert found.part == part
    assert says in found.advice
