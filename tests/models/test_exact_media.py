"""Conversations with images: one sequence on vLLM's route for ids, with every image at its own ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import smollm2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import running
from vllm_stub import IMAGE, IMAGE_LENGTH, SglangStub, VllmStub

import ludus
from ludus import Agent, Environment, Resources, Verdict
from ludus.episode import Episode
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Item, Response


@pytest.fixture(scope="module")
def smollm() -> Any:
    return smollm2.tokenizer()


class Shows(Agent):
    """Says `turns`, one after the other."""

    turns: Sequence[Item] = ()

    async def act(self, episode: Episode) -> str:
        await episode.ask()
        for item in self.turns:
            episode.say(item)
            await episode.ask()
        return "completed"


class Nothing(Resources):
    async def verify(self, task: ludus.Task, response: Response) -> Verdict:
        return Verdict(0.0)


def user(parts: list[str]) -> Item:
    """A message. A part that is an address is an image."""
    content = [
        {"type": "input_image", "image_url": part, "detail": "auto"}
        if part.startswith("data:")
        else {"type": "input_text", "text": part}
        for part in parts
    ]
    return {"role": "user", "content": content}


def images(items: list[Item]) -> list[str]:
    """The addresses of the images of a conversation."""
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    return [part["image_url"] for part in parts if part["type"] == "input_image"]


#: Messages of texts and of images, which may be the same image twice.
PART = st.one_of(st.sampled_from(["a", "b c"]), st.sampled_from([f"data:image/png;base64,{name}" for name in "ABC"]))
TURNS = st.lists(st.lists(PART, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=TURNS, writes_placeholders=st.booleans())
def test_every_image_is_at_its_ids(turns: list[list[str]], writes_placeholders: bool, smollm: Any) -> None:
    said = f"I see {IMAGE} there" if writes_placeholders else "yes"
    with running(VllmStub(smollm, lambda random, tools: (said, True))) as stub:
        rollout = played([user(parts) for parts in turns], stub)
        (sequence,) = rollout.sequences()
    shown = images([user(parts) for parts in turns])
    if not shown:
        return
    last = stub.seen[-1]
    assert [address for _, address in last] == shown
    placeholder = smollm.convert_tokens_to_ids(IMAGE)
    for at, _ in last:
        assert sequence.ids[at : at + IMAGE_LENGTH] == [placeholder] * IMAGE_LENGTH
        assert not any(sequence.mask[at : at + IMAGE_LENGTH])


@pytest.mark.parametrize(
    ("kind", "made"),
    [("vllm", lambda words: VllmStub(words, missing=("/inference/v1/generate",))), ("sglang", SglangStub)],
)
def test_where_ids_cannot_carry_images_the_chat_route_renders_them(kind: str, made: Any, smollm: Any) -> None:
    with running(made(smollm)) as stub:
        rollout = played([user(["data:image/png;base64,A"]), user(["b"])], stub, kind)
    assert rollout.error is None
    assert rollout.calls[0].get("broke") is None
    assert "images" in str(rollout.calls[1].get("broke", "images"))
    assert stub.asked.count("/v1/chat/completions") == 2


def test_images_with_other_ids_among_their_placeholders_go_to_the_chat_route(smollm: Any) -> None:
    class Rows(VllmStub):
        def features(self, ids: list[int], body: dict[str, Any]) -> dict[str, Any] | None:
            found = super().features(ids, body)
            for place in found["mm_placeholders"]["image"] if found else ():
                place["length"] += 1
            return found

    with running(Rows(smollm)) as stub:
        rollout = played([user(["data:image/png;base64,A"]), user(["b"])], stub)
    assert rollout.error is None
    assert stub.asked.count("/v1/chat/completions") == 2
    assert "/inference/v1/generate" not in stub.asked


@pytest.mark.parametrize("features", [7, {"mm_placeholders": 3}, {"mm_placeholders": {"image": [{"offset": 0}]}}])
def test_features_without_their_form_fail_the_call(features: Any, smollm: Any) -> None:
    class Broken(VllmStub):
        def features(self, ids: list[int], body: dict[str, Any]) -> Any:
            found = super().features(ids, body)
            return features if len(self.received) else found

    with running(Broken(smollm)) as stub:
        rollout = played([user(["data:image/png;base64,A"]), user(["data:image/png;base64,B"])], stub)
    assert rollout.error is not None
    assert rollout.error.kind == "bad_response"


async def test_images_of_an_earlier_process_begin_a_new_sequence(smollm: Any) -> None:
    """Ids that were stored are known, but not what the server made of the images among them."""
    with running(VllmStub(smollm, lambda random, tools: ("yes", True))) as stub:
        async with open_model(f"vllm:{stub.url}#policy") as model:
            model.capture_tokens = True
            first = await model.respond(Request([user(["data:image/png;base64,A"])], "s"))
            assert first.tokens is not None
            first.tokens.media = None
            items = [user(["data:image/png;base64,A"]), *first.output, user(["data:image/png;base64,B"])]
            second = await model.respond(Request(items, "s", tokens=first.tokens))
    assert second.tokens is not None
    assert str(second.tokens.broke).startswith("what the server made of earlier images is not known")
    assert [address[-1] for _, address in stub.seen[-1]] == ["A", "B"]


def played(turns: list[Item], stub: VllmStub, kind: str = "vllm") -> Any:
    """One rollout, which says these turns."""
    row, agent = {"responses_create_params": {"input": turns[:1]}}, Shows()
    agent.turns = turns[1:]
    environment = replace(Environment.load(Nothing), agent=agent)
    (rollout,) = ludus.collect(
        environment, model=open_model(f"{kind}:{stub.url}#policy", {}), tokens=True, input=[row]
    ).rollouts
    return rollout
