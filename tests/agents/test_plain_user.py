"""The user that follows rules: what it tells, what it agrees to, and when it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import Request
from ludus.agents.plain_user import GO_ON, PATIENCE, WAIT, YES, respond
from ludus.agents.user import STOP, TRANSFER, UserRole
from ludus.response import function_call, function_call_output

ROLE = UserRole(
    goal="Cancel my order.\nSend me a catalogue.",
    facts={"email address": "a@example.org", "postcode": "K1", "order number": "H7"},
    refuses=("a voucher",),
)
UNLOCK = {"type": "function", "name": "read_label", "parameters": {}}


def answer(*turns: str, role: UserRole = ROLE, tools: Any = None) -> Any:
    """What the user says after turns of both, beginning with its own."""
    sides = ("assistant", "user")
    labels = ("Customer", "Representative")
    history = [{"role": sides[n % 2], "content": f"{labels[n % 2]}: {text}"} for n, text in enumerate(turns)]
    items = [{"role": "system", "content": role.prompt()}, *(history or [{"role": "user", "content": "(Begin.)"}])]
    return respond(Request(items, **({"tools": tools} if tools else {})))


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ("What is your email address?", "Here you are. email address: a@example.org."),
        ("I need the postcode and the order.", "Here you are. postcode: K1; order number: H7."),
        ("Shall I cancel it?", YES),
        ("Would you like a voucher?", "No, I do not want a voucher. Then leave everything as it is."),
        ("Who is the president?", GO_ON),
        ("One moment, let me look.", WAIT),
        ("It is cancelled.", "Send me a catalogue."),
        ("It is cancelled. Is there anything else?", "Send me a catalogue."),
        ("You are being transferred.", TRANSFER),
    ],
)
def test_it_answers_what_it_is_asked(heard, says):
    assert answer("Cancel my order.", heard) == says


def test_it_brings_up_one_thing_after_the_other_and_then_leaves():
    assert answer() == "Cancel my order."
    assert answer("Cancel my order.", "Done.", "Send me a catalogue.", "Done. Anything else?") == STOP
    assert answer(role=UserRole()) == "Hello, can you help me?"


def test_it_confirms_a_proposal_about_what_it_told_already():
    told = ["Cancel my order.", "Which order?", "Here you are. order number: H7.", "Shall I cancel order H7?"]
    assert answer(*told) == YES


def test_it_uses_its_tool_when_it_is_asked_for_what_that_does():
    assert answer("Cancel my order.", "Please read the label.", tools=[UNLOCK]) == {"call": "read_label"}
    assert answer("Cancel my order.", "Please read the letter.", tools=[UNLOCK]) == GO_ON
    items = [
        {"role": "system", "content": ROLE.prompt()},
        {"role": "user", "content": "Representative: Please read the label."},
        function_call("read_label", {}, call_id="1"),
        function_call_output("1", "H7"),
    ]
    assert respond(Request(items)) == "I have done that. It says: H7"


@pytest.mark.parametrize(("heard", "reply"), [("Why though?", GO_ON), ("Let me look.", WAIT)])
def test_its_patience_ends(heard, reply):
    turns = ["Cancel my order. Send me a catalogue.", heard]
    for _ in range(PATIENCE):
        assert answer(*turns) == reply
        turns += [reply, heard]
    assert answer(*turns) == STOP


@given(st.lists(st.text(), max_size=6))
def test_it_always_has_an_answer(heard):
    turns = ["Cancel my order."]
    for text in heard:
        turns.append(text)
        said = answer(*turns)
        assert isinstance(said, str)
        assert said
        turns.append(said)
