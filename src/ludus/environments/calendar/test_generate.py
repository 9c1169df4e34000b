"""The generated rows: deterministic, always solvable, and their last message needs a reply."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

import ludus
from ludus import Environment, Request, ScriptedModel, UserError
from ludus.environments.calendar.generate import stream
from ludus.environments.calendar.phrases import THEMES
from ludus.environments.calendar.reading import calendar_in
from ludus.environments.calendar.resources import Calendar, problem_in, rules_of
from ludus.response import texts_of

REMARKS = {remark for _, remarks in THEMES.values() for remark in remarks}
Row = dict[str, Any]


def drawn(count: int, seed: int = 1, **settings: Any) -> list[Row]:
    return list(islice(stream(seed, **settings), count))


def said(row: Row) -> list[Row]:
    messages: list[Row] = row["responses_create_params"]["input"]
    return messages


def test_the_example_rows_are_the_first_generated_rows_of_seed_0() -> None:
    lines = Environment.load("calendar").dataset().read_text().splitlines()
    assert [json.loads(line) for line in lines] == drawn(len(lines), seed=0)
    assert len(lines) >= 5


def test_the_same_seed_gives_the_same_rows_and_another_seed_gives_other_rows() -> None:
    first = drawn(20)
    assert drawn(10) == first[:10]
    assert not [row for row in drawn(20, seed=2) if row in first]
    assert len({json.dumps(row) for row in first}) == 20


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"events": 1},
        {"events": 3, "opens": "9:00", "closes": "10:30"},
        {"events": 10, "opens": "8am", "closes": "6pm"},
        {"events": 2, "opens": "00:00", "closes": "23:59"},
        {"events": 2, "opens": "12:07", "closes": "13:44"},
    ],
)
def test_every_generated_row_has_a_solution_that_keeps_all_rules(settings: dict[str, Any]) -> None:
    for row in drawn(25, **settings):
        rules = rules_of(Calendar.Task.model_validate(row).exp_cal_state)
        assert 1 <= len(rules) <= settings.get("events", 7)
        assert problem_in(row["solution"], rules) is None


def test_the_assistant_of_the_conversation_never_shows_a_wrong_calendar() -> None:
    for row in drawn(40):
        messages = said(row)
        assert [turn["role"] for turn in messages[:3]] == ["system", "user", "assistant"][: len(messages)]
        state = row["exp_cal_state"]
        for message in messages[2::2]:
            shown = calendar_in(message["content"])
            assert shown is not None
            rules = rules_of({name: {**state[name], "constraint": None} for name in map(str, range(len(shown)))})
            assert problem_in(shown, rules) is None


def test_the_last_message_requires_a_change_or_is_a_remark() -> None:
    chats = 0
    for row in drawn(60):
        *_, before, last = said(row)
        unchanged = problem_in(calendar_in(before["content"]) or [], rules_of(row["exp_cal_state"])) is None
        assert unchanged == (last["content"] in REMARKS)
        chats += unchanged
    assert 5 <= chats <= 25


def test_the_user_states_every_event_id_and_every_constraint() -> None:
    for row in drawn(30):
        text = "\n".join(turn["content"] for turn in said(row) if turn["role"] == "user").replace(" am", "am")
        text = text.replace(" pm", "pm")
        for name, event in row["exp_cal_state"].items():
            assert f"event id: {name}" in text
            times = (event["constraint"] or "x ").partition(" ")[2].split(" and ")
            assert all(time in text for time in times)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"events": 0}, "data.events=0 must be a whole number from 1 to 10"),
        ({"events": 11}, "data.events=11 must be"),
        ({"events": 4, "closes": "11:30"}, "from 1 to 3 between 10:00 and 11:30"),
        ({"events": "many"}, "data.events='many'"),
        ({"opens": "ten"}, "data.opens='ten'.* not a time of the day"),
        ({"opens": 36000}, "data.opens=36000"),
        ({"opens": "16:00"}, "must be 30 minutes or more after"),
        ({"closes": "24:00"}, "on the same day"),
    ],
)
def test_a_wrong_setting_gives_a_one_line_error_that_names_it(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        stream(1, **settings)
    assert "\n" not in str(caught.value)


def test_the_solutions_of_generated_rows_earn_full_reward_in_a_collection() -> None:
    solutions = {tuple(map(texts_of, said(row))): json.dumps(row["solution"]) for row in drawn(12, seed=5, events=4)}

    def oracle(request: Request) -> str:
        return solutions[tuple(map(texts_of, request.input))]

    result = ludus.collect(
        "calendar", model=ScriptedModel(oracle), dataset="stream", limit=12, seed=5, settings={"data.events": 4}
    )
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * 12
