"""The rule-based user: what it tells, which proposals it accepts, and when it ends the conversation."""

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
READ_LABEL = {"type": "function", "name": "read_label", "parameters": {}}


def answer(*turns: str, role: UserRole = ROLE, tools: Any = None) -> Any:
    """The user's next message after these turns, which alternate and begin with the user's."""
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
def test_the_user_answers_each_kind_of_message(heard, says):
    assert answer("Cancel my order.", heard) == says


def test_the_user_states_its_goals_in_order_and_then_stops():
    assert answer() == "Cancel my order."
    assert answer("Cancel my order.", "Done.", "Send me a catalogue.", "Done. Anything else?") == STOP
    assert answer(role=UserRole()) == "Hello, can you help me?"


def test_the_user_accepts_a_proposal_that_mentions_a_fact_it_has_told():
    told = ["Cancel my order.", "Which order?", "Here you are. order number: H7.", "Shall I cancel order H7?"]
    assert answer(*told) == YES


def test_the_user_calls_a_tool_when_a_request_has_all_words_of_the_tools_name():
    assert answer("Cancel my order.", "Please read the label.", tools=[READ_LABEL]) == {"call": "read_label"}
    assert answer("Cancel my order.", "Please read the letter.", tools=[READ_LABEL]) == GO_ON
    items = [
        {"role": "system", "content": ROLE.prompt()},
        {"role": "user", "content": "Representative: Please read the label."},
        function_call("read_label", {}, call_id="1"),
        function_call_output("1", "H7"),
    ]
    assert respond(Request(items)) == "I have done that. It says: H7"


@pytest.mark.parametrize(("heard", "reply"), [("Why though?", GO_ON), ("Let me look.", WAIT)])
def test_the_user_stops_after_too_many_unanswerable_questions_or_promises(heard, reply):
    turns = ["Cancel my order. Send me a catalogue.", heard]
    for _ in range(PATIENCE):
        assert answer(*turns) == reply
        turns += [reply, heard]
    assert answer(*turns) == STOP


@given(st.lists(st.text(), max_size=6))
def test_the_user_has_an_answer_to_any_text(heard):
    turns = ["Cancel my order."]
    for text in heard:
        turns.append(text)
        said = answer(*turns)
        assert isinstance(said, str)
        assert said
        turns.append(said)
