"""NetHack: actions by name, keys that are refused, games that follow from the seed, and odd answers."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import needs_installed
from ludus_lab.nethack.actions import NAMES, actions_of, key_of
from ludus_lab.nethack.explorer import Screen, explore
from ludus_lab.nethack.generate import row, stream

import ludus
from ludus import Environment, ScriptedModel

pytestmark = needs_installed("ludus_lab.nethack")


def collect(*rows: dict[str, Any], model: Any, concurrency: int = 4) -> list[Any]:
    environment = Environment.load("nethack")
    return ludus.collect(environment, model=ScriptedModel(model), input=list(rows), concurrency=concurrency).rollouts


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("<actions>north</actions>", ["north"]),
        ("<actions>North,  FAR   east</actions>", ["north", "far east"]),
        ("<actions>pray</actions> No: <actions>y</actions>", ["y"]),
        ("<actions></actions>", None),
        ("<actions>levelport</actions>", None),
        ("<actions>north", None),
        ("north", None),
        (f"<actions>{', '.join(['wait'] * 21)}</actions>", None),
        ("<actions>\x16</actions>", None),
        ("<actions>!</actions>", None),
    ],
)
def test_the_last_pair_of_tags_holds_the_actions(text, actions):
    assert actions_of(text, 20) == actions


@given(st.text())
def test_any_text_is_read_as_known_actions_or_none(text):
    for answer in (text, f"<actions>{text}</actions>"):
        for name in actions_of(answer, 20) or []:
            assert name in NAMES or (len(name) == 1 and key_of(name, False) is None)


def test_a_letter_is_refused_where_the_game_asks_nothing():
    (rollout,) = collect(row(7, answers=2), model=["<actions>wait, S, y, wait</actions>"])
    shown = rollout.response.output[2]["content"]
    assert shown.startswith("The game asks for nothing now, so 'S' was not pressed")
    assert rollout.verdict.values["info"]["actions"] == 2  # one wait in each answer


def test_the_game_s_question_is_answered_with_a_letter():
    (rollout,) = collect(row(7, answers=2), model=["<actions>drop, a</actions>", "<actions>inventory</actions>"])
    first = rollout.response.output[2]["content"]
    assert "You drop" in first


def test_the_explorer_reaches_the_next_level():
    (rollout,) = collect(row(61), model=explore)
    assert (rollout.reward, rollout.stop_reason) == (1.0, "terminated")
    assert rollout.verdict.components["depth"] >= 2
    assert rollout.verdict.components["progress"] == 1.0


def test_the_same_seed_and_actions_lead_to_the_same_game():
    rollouts = sorted(
        collect(*(row(seed, answers=6) for seed in (43, 43, 44)), model=explore), key=lambda r: r.task.seed
    )
    first, again, other = ([item for item in r.response.output if item.get("role") == "user"] for r in rollouts)
    assert first == again != other


def test_a_score_can_be_the_goal():
    (rollout,) = collect(row(61, goal="score", target=50), model=explore)
    assert rollout.reward == 1.0
    assert rollout.verdict.components["score"] >= 50


def test_waiting_reaches_no_goal():
    (rollout,) = collect(row(7, answers=3), model=["<actions>wait, search</actions>"])
    assert (rollout.reward, rollout.stop_reason) == (0.0, "truncated")
    assert rollout.verdict.values["info"]["end"] == "out of answers"


def test_answers_without_actions_end_the_game_after_two_reminders():
    (rollout,) = collect(row(7), model=["I am thinking."])
    assert (rollout.reward, len(rollout.calls), rollout.verdict.values["info"]["end"]) == (0.0, 3, "no actions")


@settings(max_examples=5, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*NAMES, *"ynq$*?aZ09"]), min_size=1, max_size=20), min_size=1, max_size=15))
def test_any_actions_end_in_a_verdict(turns):
    answers = [f"<actions>{', '.join(names)}</actions>" for names in turns]
    (rollout,) = collect(row(3, answers=len(turns)), model=answers)
    assert rollout.error is None
    assert rollout.reward in (0.0, 1.0)


def test_fifty_games_at_once_are_all_judged():
    rollouts = collect(*(row(seed, answers=4) for seed in range(50)), model=explore, concurrency=50)
    assert [rollout.outcome for rollout in rollouts] == ["completed"] * 50
    assert all(rollout.verdict.components["depth"] >= 1 for rollout in rollouts)


def test_the_screen_shows_the_player_at_the_cursor():
    (rollout,) = collect(row(7, answers=1), model=["<actions>wait</actions>"])
    screen = Screen(rollout.response.output[0]["content"])
    assert screen.at(screen.me) == "@"


def test_rows_follow_from_the_seed():
    rows = list(islice(stream(4, goal="score", target=100), 5))
    assert rows == list(islice(stream(4, goal="score", target=100), 5)) != list(islice(stream(5), 5))
    assert all(Environment.load("nethack").task(each) for each in rows)


@pytest.mark.parametrize("fields", [{"character": "val; rm -rf"}, {"target": 0}, {"seed": -1}, {"goal": "ascend"}])
def test_a_bad_row_is_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        Environment.load("nethack").task({**row(1), **fields})
