"""Tokens: every generated id is trained on exactly once, even if the chat template rewrites earlier turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.tokens import TokenLog, Tokens, sequences

jinja2 = pytest.importorskip("jinja2", reason="chat templates are rendered with jinja2")

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """<|begin|>{% for m in messages %}<|header|>{{ m.role }}<|end_header|>

{{ m.content | trim }}<|eot|>{% endfor %}{% if add_generation_prompt %}<|header|>assistant<|end_header|>

{% endif %}"""
THINKING = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" and not loop.last %}{{ m.content.split("</think>")[-1] }}{% else %}{{ m.content }}
{%- endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATES = {"chatml": (CHATML, "<|im_end|>"), "llama": (LLAMA, "<|eot|>"), "thinking": (THINKING, "<|im_end|>")}


def tokenise(text: str) -> list[int]:
    """A toy tokenizer: one id per letter, but one id for two vowels, so that joining texts may change ids."""
    ids, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        merged = len(pair) == 2 and all(letter in "aeiou" for letter in pair)
        ids.append(1_000_000 + ord(pair[0]) * 1000 + ord(pair[1]) if merged else ord(text[at]))
        at += 2 if merged else 1
    return ids


WORDS = st.text(alphabet="aeioubcd ", min_size=1, max_size=12)
TURNS = st.lists(st.tuples(WORDS, st.one_of(st.none(), WORDS), WORDS), min_size=1, max_size=6)


def play(template: str, end: str, turns: list[tuple[str, str | None, str]]) -> list[Tokens]:
    """The token ids of each call in a conversation, as a server reports them. Each prompt is rendered anew."""
    render = jinja2.Template(template).render
    messages, calls = [], []
    for number, (asked, thought, said) in enumerate(turns):
        messages.append({"role": "user", "content": asked})
        prompt = tokenise(render(messages=messages, add_generation_prompt=True))
        text = f"<think>{thought}</think>{said}" if thought is not None else said
        generated = tokenise(text) + tokenise(end)
        calls.append(Tokens(prompt, generated, [-0.5 - number] * len(generated), f"v{number}"))
        messages.append({"role": "assistant", "content": text})
    return calls


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(TEMPLATES)), TURNS)
def test_every_generated_id_is_trained_on_once_and_every_sequence_is_one_calls_prompt_and_output(name, turns):
    calls = play(*TEMPLATES[name], turns)
    log = TokenLog()
    stored = [log.add(call) for call in calls]
    found = list(sequences(stored))
    trained = [(i, p) for seq in found for i, m, p in zip(seq.ids, seq.mask, seq.logprobs, strict=True) if m]
    generated = [(i, p) for call in calls for i, p in zip(call.generated_ids, call.logprobs, strict=True)]
    assert trained == generated
    whole = [call.prompt_ids + call.generated_ids for call in calls]
    assert all(seq.ids in whole for seq in found), "a sequence is the prompt and the output of one call"
    assert [version for seq in found for version in seq.policy_versions] == [call.policy_version for call in calls]


def test_a_template_that_keeps_earlier_turns_gives_one_sequence():
    log = TokenLog()
    calls = play(*TEMPLATES["chatml"], [("b c", None, "d b"), ("c c", None, "b d"), ("d", None, "c")])
    assert len(list(sequences(log.add(call) for call in calls))) == 1


def test_a_template_that_drops_old_thinking_starts_a_new_sequence_and_keeps_the_prefix_as_context():
    log = TokenLog()
    calls = play(*TEMPLATES["thinking"], [("b", "c c", "d"), ("c", "b b", "d")])
    first, second = sequences(log.add(call) for call in calls)
    assert first.ids == calls[0].prompt_ids + calls[0].generated_ids
    assert second.ids == calls[1].prompt_ids + calls[1].generated_ids
    assert sum(second.mask) == len(calls[1].generated_ids)


def test_stored_token_ids_grow_linearly_with_the_turns():
    def stored(turns: int) -> int:
        log = TokenLog()
        calls = play(*TEMPLATES["chatml"], [("b" * 50, None, "c" * 50)] * turns)
        return sum(len(record["prompt_ids"]) + len(record["generated_ids"]) for record in map(log.add, calls))

    assert stored(40) <= 2.05 * stored(20)


def test_a_call_without_output_needs_no_token_ids_if_another_call_has_them():
    from ludus.outcome import Outcome, Verdict
    from ludus.rollout import Job, Rollout
    from ludus.task import Task

    job = Job("t-0", "t", 0, Task(responses_create_params={"input": "x"}), {})
    with_tokens = {"items": 1, "prefix": 0, "prompt_ids": [1], "generated_ids": [2], "logprobs": [-0.1]}
    for calls, outcome in (
        ([with_tokens, {"items": 0}], Outcome.COMPLETED),
        ([with_tokens, {"items": 1}], Outcome.MASKED),
        ([{"items": 0}], Outcome.MASKED),
        ([], Outcome.MASKED),
    ):
        rollout = Rollout(job, outcome=Outcome.COMPLETED, verdict=Verdict(1.0), calls=calls)
        rollout.require_tokens()
        assert rollout.outcome is outcome
