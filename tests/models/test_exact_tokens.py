"""A rollout is one sequence of the ids that the server read and sampled, however its policy spells calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import smollm2
import tiny_transformers
from servers import running
from vllm_stub import SCALE_OUT, SglangStub, VllmStub

import ludus
from ludus import Agent, Environment, Resources, Verdict
from ludus.episode import Episode
from ludus.model import Request
from ludus.models import open_model
from ludus.models.local import LocalModel
from ludus.response import Item, Response, function_call_output

#: With tools, with calls at once, games, conversations.
ENVIRONMENTS = (
    "example_session_state_mgmt",
    "example_multi_step",
    "workplace_assistant",
    "example_single_tool_call",
    "math_advanced_calculations",
    "blackjack",
    "example_multi_turn_gymnasium",
    "conversational_tool_use_simulation",
    "user_modeling",
    "mcqa",
)


class AskTwice(Agent):
    """Asks again, with the beginning of an answer."""

    async def act(self, episode: Episode) -> str:
        await episode.ask()
        episode.say({"role": "user", "content": "b"})
        episode.say({"role": "assistant", "content": "Now, "})
        await episode.ask()
        return "completed"


class Nothing(Resources):
    async def verify(self, task: ludus.Task, response: Response) -> Verdict:
        return Verdict(0.0)


def collected(environment: Any, stub: VllmStub, kind: str = "vllm", **options: Any) -> list[Any]:
    return collection(environment, stub, kind, **options).rollouts


def collection(environment: Any, stub: VllmStub, kind: str = "vllm", **options: Any) -> Any:
    model = open_model(f"{kind}:{stub.url}#policy", options.pop("model_settings", {}))
    if environment == "conversational_tool_use_simulation":
        options["settings"] = {"resources.enable_llm_judge": False}
    return ludus.collect(environment, model=model, tokens=True, **options)


def check(rollouts: list[Any], stub: VllmStub) -> None:
    """Each rollout is one sequence, and its prompts are those that the server read."""
    received = {tuple(prompt) for prompt in stub.received}
    for rollout in rollouts:
        assert rollout.error is None, rollout.error
        (sequence,) = rollout.sequences()
        assert sum(sequence.mask) == sum(len(call["generated_ids"]) for call in rollout.calls)
        at = 0
        for call in rollout.calls:
            at += len(call["prompt_ids"])
            assert tuple(sequence.ids[:at]) in received
            at += len(call["generated_ids"])


@pytest.fixture(scope="module")
def smollm() -> Any:
    return smollm2.tokenizer()


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_rollout_is_one_sequence(environment: str, smollm: Any) -> None:
    with running(VllmStub(smollm)) as stub:
        run = collection(environment, stub, repeats=2, limit=4)
        rollouts = run.rollouts
        check(rollouts, stub)
        assert run.metrics["model"]["lost"] == {}
        assert stub.asked.count("/v1/chat/completions") == len(rollouts), "only the first call of a rollout is chat"
        assert environment == "mcqa" or any(len(rollout.calls) > 1 for rollout in rollouts)


@pytest.mark.parametrize("template", sorted(tiny_transformers.TEMPLATES))
@pytest.mark.parametrize("missing", [(), SCALE_OUT, SCALE_OUT[:1]])
def test_with_every_template_and_on_older_servers(template: str, missing: tuple[str, ...]) -> None:
    with running(VllmStub(tiny_transformers.tokenizer(template), missing=missing)) as stub:
        for environment in ("example_session_state_mgmt", "conversational_tool_use_simulation"):
            check(collected(environment, stub, repeats=2, limit=3), stub)


def test_a_server_with_closed_routes_is_asked_another_way_and_the_run_says_how_to_open_them(smollm: Any) -> None:
    with running(VllmStub(smollm, closed=True)) as stub:
        played = collection("example_session_state_mgmt", stub, repeats=2, limit=3)
        check(played.rollouts, stub)
    (warning,) = played.metrics["warnings"]
    assert "--enable-scale-out" in warning


@pytest.mark.parametrize(
    ("kind", "made"),
    [("vllm", VllmStub), ("vllm", lambda words: VllmStub(words, missing=SCALE_OUT)), ("sglang", SglangStub)],
)
def test_a_prefilled_answer_goes_on(kind: str, made: Any, smollm: Any) -> None:
    row = {
        "responses_create_params": {
            "input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Well, "}]
        }
    }
    settings = {"chat_template_kwargs": {"continue_final_message": True}}
    with running(made(smollm)) as stub:
        rollouts = collected(
            replace(Environment.load(Nothing), agent=AskTwice()), stub, kind, input=[row], model_settings=settings
        )
        check(rollouts, stub)
        prompts = [stub.decode(prompt) for prompt in stub.received]
    assert len(rollouts[0].calls) == 2
    assert prompts[0].endswith("<|im_start|>assistant\nWell, ")
    assert prompts[1].endswith("<|im_start|>assistant\nNow, ")


def test_sglang_takes_ids_on_its_chat_route_and_says_which_weights_wrote_what(smollm: Any) -> None:
    with running(SglangStub(smollm)) as stub:
        rollouts = collected("example_session_state_mgmt", stub, "sglang", repeats=2, limit=4)
        check(rollouts, stub)
    (sequence,) = rollouts[0].sequences()
    assert [version for _, _, version in sequence.version_spans][:2] == ["7", "8"]
    assert sequence.extras[0] == {"routed_experts": "AAA="}


@pytest.mark.parametrize(
    ("kind", "made", "settings"),
    [
        ("vllm", lambda words: VllmStub(words), {"history": "chat"}),
        ("vllm", lambda words: VllmStub(words, missing=(*SCALE_OUT, "/tokenize")), {}),
        ("sglang", lambda words: SglangStub(words, ignores_ids=True), {}),
    ],
)
def test_a_server_that_takes_no_ids_breaks_sequences_and_the_record_says_where(
    kind: str, made: Any, settings: dict[str, Any]
) -> None:
    with running(made(tiny_transformers.tokenizer("tools"))) as stub:
        run = collection("example_session_state_mgmt", stub, kind, repeats=4, limit=4, model_settings=settings)
    broken = [call for rollout in run.rollouts for call in rollout.calls if "broke" in call]
    assert broken
    found = run.metrics["broken_sequences"]
    assert found["sequences"] == len(broken) == sum(len(list(each.sequences())) - 1 for each in run.rollouts)
    assert found["repeated_tokens"] == sum(call["prefix"] + len(call["prompt_ids"]) for call in broken)
    assert list(found["why"]) == ["no ids were sent, and the server rendered the conversation anew"]
    assert "tokens; the first because no ids were sent" in str(run)
    assert all(call["broke"].startswith("no ids were sent, and the server rendered") for call in broken)
    assert any("<tool_call>" in call["broke"] and " became " in call["broke"] for call in broken)


@pytest.mark.parametrize(
    ("kind", "way", "made"),
    [
        ("vllm", "generate", lambda words: VllmStub(words, closed=True)),
        ("vllm", "completions", lambda words: VllmStub(words, missing=("/tokenize",))),
        ("sglang", "input_ids", lambda words: SglangStub(words, ignores_ids=True)),
    ],
)
def test_a_way_that_was_asked_for_and_is_missing_is_a_failure(kind: str, way: str, made: Any) -> None:
    with running(made(tiny_transformers.tokenizer("tools"))) as stub:
        run = collection("example_session_state_mgmt", stub, kind, repeats=4, limit=4, model_settings={"history": way})
    failed = [rollout.error for rollout in run.rollouts if rollout.error is not None]
    assert failed
    for error in failed:
        assert error.kind == "unsupported"
        assert f"has no route for history={way}: set history to auto" in error.cause
    assert not run.metrics.get("warnings"), "advice is for a run that does without the route"


def test_llama_cpp_plays_one_sequence(tmp_path: Path) -> None:
    tiny_transformers.write_gguf(str(path := tmp_path / "tiny.gguf"), "tools")
    settings = {"path": str(path), "threads": 1, "max_output_tokens": 6, "context": 4096}
    model = open_model("local", settings)
    rollouts = ludus.collect("example_multi_turn_gymnasium", model=model, tokens=True, limit=2).rollouts
    assert any(len(rollout.calls) > 1 for rollout in rollouts)
    for rollout in rollouts:
        assert rollout.error is None, rollout.error
        (sequence,) = rollout.sequences()
        assert sum(sequence.mask) == sum(len(call["generated_ids"]) for call in rollout.calls)


@pytest.mark.parametrize("template", ["tools", "chatml"])
async def test_a_file_with_a_template_for_tools_is_asked_with_it(template: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_transformers.write_gguf(str(path), template)
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    items: list[Item] = [{"role": "user", "content": "a <|im_end|>"}]
    before: Response | None = None
    words = tiny_transformers.tokenizer(template)
    async with LocalModel(LocalModel.Config(path=path, threads=1, parallel=1, max_output_tokens=5)) as model:
        for added in (function_call_output("c", "<|im_start|>b"), {"role": "user", "content": "c"}, None):
            answer = await said(model, items, before, tools=[tool])
            assert answer.tokens is not None
            if before is not None and before.tokens is not None:
                past = [*before.tokens.prompt_ids, *before.tokens.generated_ids]
                assert list(answer.tokens.prompt_ids)[: len(past)] == past
                assert answer.tokens.broke is None
            before, items = answer, [*items, *answer.output, *([added] if added else [])]
    assert before.tokens is not None
    text = words.decode(list(before.tokens.prompt_ids))
    assert ('"type": "function"' in text) == (template == "tools"), "or else the tools are instructions"
    control = [words.convert_tokens_to_ids(token) for token in ("<|im_start|>", "<|im_end|>")]
    opened, closed = (list(before.tokens.prompt_ids).count(id) for id in control)
    assert (opened, closed) == (7, 6), "no text of users and tools is a control token"


@pytest.mark.parametrize("template", ["tools", "chatml"])
async def test_llama_cpp_goes_on_with_a_prefilled_answer(template: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_transformers.write_gguf(str(path), template)
    words = tiny_transformers.tokenizer(template)
    items: list[Item] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]
    goes_on = {"continue_final_message": True}
    async with LocalModel(LocalModel.Config(path=path, threads=1, parallel=1, max_output_tokens=3)) as model:
        first = await said(model, items, chat_template_kwargs=goes_on)
        assert first.tokens is not None
        assert words.decode(list(first.tokens.prompt_ids)).endswith("b c")
        more = [*items, *first.output, {"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]
        second = await said(model, more, first, chat_template_kwargs=goes_on)
    assert second.tokens is not None
    past = [*first.tokens.prompt_ids, *first.tokens.generated_ids]
    assert second.tokens.broke is None
    assert list(second.tokens.prompt_ids)[: len(past)] == past
    assert words.decode(list(second.tokens.prompt_ids)[len(past) :]).endswith("e")


async def said(model: Any, items: list[Item], before: Response | None = None, **params: Any) -> Response:
    request = Request(items, session="s", tokens=before.tokens if before else None, params=params)
    response: Response = await model.respond(request)
    return response


async def test_extras_limits_stop_strings_and_answers_that_go_on(smollm: Any) -> None:
    with running(VllmStub(smollm, lambda random, tools: ("one two three", True))) as stub:
        stub.extras = {"routed_experts": "k05VTVBZ"}
        async with open_model(f"vllm:{stub.url}#policy") as model:
            model.capture_tokens = True
            first = await said(model, items := [{"role": "user", "content": "a"}], max_output_tokens=3)
            assert (first.incomplete_reason, first.tokens and first.tokens.extras) == (
                "max_output_tokens",
                {"routed_experts": "k05VTVBZ"},
            )
            more = await said(model, [*items, *first.output], first, stop="two")
            assert first.tokens is not None
            assert more.tokens is not None
            assert list(more.tokens.prompt_ids) == [*first.tokens.prompt_ids, *first.tokens.generated_ids]
            assert more.output_text == "one "
            assert more.tokens.extras == {"routed_experts": "k05VTVBZ"}
            user = {"role": "user", "content": "b"}
            last = await said(model, [*items, *first.output, *more.output, user], more)
    assert last.tokens is not None
    past = [*more.tokens.prompt_ids, *more.tokens.generated_ids]
    assert list(last.tokens.prompt_ids)[: len(past)] == past
    added = smollm.decode(list(last.tokens.prompt_ids)[len(past) :])
    assert added == "\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    assert last.output_text == "one two three"


def test_a_server_that_read_other_ids_is_not_believed(smollm: Any) -> None:
    class Wrong(VllmStub):
        def generate(self, body: dict[str, Any]) -> dict[str, Any]:
            return super().generate({**body, "token_ids": body["token_ids"][1:]})

    with running(Wrong(smollm)) as stub:
        rollouts = collected("example_session_state_mgmt", stub, limit=3)
    failures = [rollout.error for rollout in rollouts if len(rollout.calls) > 0 and rollout.error]
    assert failures
    assert {failure.kind for failure in failures} == {"bad_response"}


@pytest.mark.parametrize(("kind", "made"), [("vllm", VllmStub), ("sglang", SglangStub)])
@pytest.mark.parametrize("strict", [False, True])
def test_calls_of_strict_tools_are_sampled_freely_unless_a_setting_says_otherwise(
    kind: str, made: Any, strict: bool, smollm: Any
) -> None:
    """Servers sample calls of strict tools under a grammar, whose log probabilities are not the policy's."""
    with running(made(smollm)) as stub:
        settings = {"strict_tools": True} if strict else {}
        rollouts = collected("example_session_state_mgmt", stub, kind, limit=2, model_settings=settings)
        check(rollouts, stub)
    tools = [tool["function"] for body in stub.bodies for tool in body.get("tools") or ()]
    assert tools
    assert any("strict" in tool for tool in tools) == strict


async def test_images_and_changed_tools_are_rendered_by_the_chat_route(smollm: Any) -> None:
    with running(VllmStub(smollm, lambda random, tools: ("yes", True))) as stub:
        async with open_model(f"vllm:{stub.url}#policy") as model:
            model.capture_tokens = True
            first = await said(model, items := [{"role": "user", "content": "a"}])
            tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
            again = [*items, *first.output, {"role": "user", "content": "b"}]
            other = await said(model, again, first, tools=[tool])
            assert other.tokens is not None
            assert str(other.tokens.broke).startswith("the tools or the instructions were changed")
