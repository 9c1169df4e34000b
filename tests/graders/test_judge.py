"""Judges: no answer can break out of the prompt, replies are read by rule, and no verdict is invented."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import Failure, Model, Request, Response, ScriptedModel, UserError
from ludus.graders.judge import Judge, JudgeConfig, Rubric, judge_usage, open_judge, require_judge
from ludus.response import message, reasoning, texts_of

RUBRIC = Rubric("{question} {expected_answer} {generated_answer}")
YES, NO = "[[A=B]]", "[[A!=B]]"


def scripted_judge(*replies: Any) -> tuple[Judge, list[str]]:
    """A judge that gives these replies in order, and the list of the prompts that it got."""
    seen: list[str] = []
    remaining = iter(replies)

    def answer(request: Request) -> Any:
        seen.append(texts_of(request.input[-1]))
        return next(remaining)

    return Judge(ScriptedModel(answer)), seen


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        (Response.of(message(f"so {YES}")), YES),
        (Response.of(message(f"{NO}{YES}")), NO),
        (Response.of(message("no verdict")), None),
        (Response.of(reasoning(YES)), None),
        (Response.of(message(YES), reasoning("after")), None),
        (Response.of(message(NO), message(YES)), YES),
        (Response.of({"type": "message", "role": "assistant", "content": [{"text": YES}, {"text": "end"}]}), None),
        (Response.of({"type": "message", "role": "assistant", "content": YES}), YES),
        (Response.of({"type": "message", "role": "assistant", "content": [{"refusal": YES}]}), None),
        (Response.of({"type": "message", "role": "assistant", "content": []}), None),
        (Response.of(), None),
    ],
)
def test_the_first_label_of_the_last_part_of_the_last_message_counts(reply: Response, label: str | None) -> None:
    assert RUBRIC.label(reply) == label


def test_the_longer_label_counts_where_one_label_contains_the_other() -> None:
    rubric = Rubric("", equal="CORRECT", not_equal="INCORRECT")
    assert rubric.label(Response.of(message("INCORRECT"))) == "INCORRECT"
    rubric = Rubric("", equal="YES", not_equal="YES BUT NO")
    assert rubric.label(Response.of(message("YES BUT NO"))) == "YES BUT NO"


@given(st.text(alphabet=st.sampled_from("[]A=B!<| \nx"), max_size=60))
def test_a_guarded_answer_holds_no_label_and_no_control_token(answer: str) -> None:
    guarded = RUBRIC.guard(answer)
    assert YES not in guarded
    assert NO not in guarded
    assert "<|" not in guarded


def test_template_fields_inside_an_answer_are_not_replaced() -> None:
    rubric = Rubric("{{{question}}} {mark} {generated_answer}", system="Be fair.")
    items = rubric.ask("{mark}", "b", "{question} {mark}")
    assert items[0] == {"role": "system", "content": "Be fair."}
    mark = items[1]["content"].split()[1]
    assert items[1]["content"] == f"{{{{mark}}}} {mark} {{question}} {{mark}}"
    assert rubric.ask("q", "b", "other")[1]["content"].split()[1] != mark


async def test_both_ways_asks_again_with_the_answers_exchanged() -> None:
    judge, seen = scripted_judge(YES, NO)
    evaluation = await judge.both_ways(RUBRIC, "q", "gold", "given")
    assert not evaluation.equal
    assert seen == ["q gold given", "q given gold"]
    judge, seen = scripted_judge(NO)
    assert not (await judge.both_ways(RUBRIC, "q", "gold", "given")).equal
    assert len(seen) == 1


async def test_a_cached_verdict_costs_no_request_and_no_tokens() -> None:
    replies = [Response.of(message(label), usage={"output_tokens": 5}) for label in (YES, NO, NO)]
    judge, seen = scripted_judge(*replies)
    first = await judge.compare(RUBRIC, "q", "a", "a")
    second = await judge.compare(RUBRIC, "q", "a", "a")
    assert (first.equal, second.equal, len(seen)) == (True, True, 1)
    assert judge_usage(first.records + second.records) == judge.usage == {"output_tokens": 5}
    assert not (await judge.compare(RUBRIC, "q", "a", "a", swapped=True)).equal
    assert not (await judge.compare(RUBRIC, "q", "a", "a", again=True)).equal
    assert len(seen) == 3


async def test_a_judge_without_a_cache_asks_every_time() -> None:
    judge = Judge(ScriptedModel([YES]), cache_size=0)
    for _ in range(2):
        evaluation = await judge.compare(RUBRIC, "q", "a", "b")
        assert "cached" not in evaluation.records[0]


@pytest.mark.parametrize(
    ("replies", "equal", "asked"),
    [([YES, YES], True, 2), ([YES, NO, YES], True, 3), ([NO, YES, NO], False, 3), ([NO, NO], False, 2)],
)
async def test_voting_ends_once_the_result_is_certain(replies: list[str], equal: bool, asked: int) -> None:
    judge, seen = scripted_judge(*replies)
    judge.votes = 3
    assert (await judge.compare(RUBRIC, "q", "a", "b")).equal is equal
    assert len(seen) == asked


async def failure_of(answer: Callable[[Request], Any], **settings: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        await Judge(ScriptedModel(answer), **settings).compare(RUBRIC, "q", "a", "b")
    assert raised.value.kind == "judge"
    return raised.value


async def test_any_error_while_asking_the_judge_is_a_failure_of_kind_judge() -> None:
    def crash(request: Request) -> Any:
        raise ValueError("boom")

    assert (await failure_of(crash)).cause == "ValueError: boom"
    busy = {"error": {"kind": "http_503", "cause": "busy"}}
    assert (await failure_of(lambda request: busy)).cause == "http_503: busy"
    assert (await failure_of(lambda request: {"delay": 5}, timeout=0.05)).cause == "the judge timed out after 0.05 s"
    assert "not a response" in (await failure_of(lambda request: Response({"nonsense": 1}))).cause
    failed = Response.of(status="failed", error="x")
    assert "the judge's response failed" in (await failure_of(lambda request: failed)).cause
    assert "cut off" in (await failure_of(lambda request: {"text": "hm", "incomplete": "max_output_tokens"})).cause


async def test_a_failure_is_not_cached() -> None:
    judge, _ = scripted_judge({"error": {"kind": "http_500"}}, YES)
    with pytest.raises(Failure):
        await judge.compare(RUBRIC, "q", "a", "b")
    assert (await judge.compare(RUBRIC, "q", "a", "b")).equal


async def test_concurrency_limits_the_requests_in_flight() -> None:
    running = most = 0

    async def answer(request: Request) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return YES

    judge = Judge(ScriptedModel(answer), concurrency=3)
    await asyncio.gather(*(judge.compare(RUBRIC, "q", "a", str(n)) for n in range(20)))
    assert most == 3


async def test_requests_carry_the_given_parameters() -> None:
    seen: list[Request] = []

    class RecordingModel(Model):
        async def respond(self, request: Request) -> Response:
            seen.append(request)
            return Response.of(message(YES))

    await Judge(RecordingModel(), params={"temperature": 0.0}).compare(RUBRIC, "q", "a", "b")
    assert seen[0].params == {"temperature": 0.0}


async def test_open_judge_opens_the_judge_that_the_settings_name(tmp_path: Path) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text(f"['{YES}']")
    async with open_judge(JudgeConfig(judge=f"scripted:{path}", judge_votes=3)) as judge:
        assert judge is not None
        assert len((await judge.compare(RUBRIC, "q", "a", "b")).records) == 2
    async with open_judge(JudgeConfig()) as none:
        assert none is None
        with pytest.raises(Failure, match="--set resources.judge=SPEC") as raised:
            require_judge(none)
        assert raised.value.kind == "no_judge"
    with pytest.raises(UserError, match="unknown model"):
        async with open_judge(JudgeConfig(judge="nonsense")):
            pass
