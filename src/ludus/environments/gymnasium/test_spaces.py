"""Spaces as text, and environments of the gymnasium library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_qualify.run import qualify

import ludus
from ludus import Rollout, ScriptedModel, UserError
from ludus.environments.gymnasium.spaces import Actions, numbers_in, plain_picture, rendered
from ludus.rescore.rescoring import rescore
from ludus.response import texts_of

gymnasium = pytest.importorskip("gymnasium", reason="needs gymnasium: pip install 'ludus-gym[gymnasium]'")
numpy = pytest.importorskip("numpy")
spaces = gymnasium.spaces

ROW: dict[str, Any] = {"responses_create_params": {"input": "Begin."}, "seed": 5}


def collected(name: str, *turns: Any, **options: Any) -> ludus.Collection:
    return ludus.collect(f"gymnasium:{name}", model=ScriptedModel(list(turns)), input=[ROW], **options)


def play(name: str, *turns: Any, **options: Any) -> Rollout:
    return collected(name, *turns, **options).rollouts[0]


def said(rollout: Rollout) -> list[str]:
    assert rollout.response is not None, rollout.error
    return [texts_of(item) for item in rollout.response.output]


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("<action>2</action>", 2),
        ("<ACTION> 2\n</Action>", 2),
        ("<action>1</action> No: <action>2</action>", 2),
        (r"\boxed{2}", 2),
        (r"<action>2</action> \boxed{1}", 2),
        ("2", 2),
        ("I count 7 doors and take number 2.", 2),
        ("2\n", 2),
        ("<action>4</action>", None),
        ("<action>-1</action>", None),
        ("<action>two</action> 1", None),
        ("<action>1 2</action>", None),
        ("<action>2", None),
        ("<action>1</action> <action>2", None),
        ("</action>2<action>", None),
        (r"\boxed{go} 2", None),
        ("Go to 1.5", None),
        ("9" * 5000, None),
        ("<action>" + "9" * 5000 + "</action>", None),
        ("<action>\u0662</action>", 2),
        ("", None),
        ("<action>" * 50_000, None),
        ("1 " * 50_000, 1),
    ],
)
def test_a_number_is_read_from_the_last_tag_box_or_number(answer: str, action: int | None) -> None:
    assert Actions(spaces.Discrete(4)).read(answer) == action


def test_a_discrete_range_may_start_below_zero() -> None:
    actions = Actions(spaces.Discrete(3, start=-1))
    assert (actions.described, actions.example) == ("an integer from -1 to 1", "-1")
    assert [actions.read(f"<action>{n}</action>") for n in (-2, -1, 0, 1, 2)] == [None, -1, 0, 1, None]


def test_several_numbers_are_read_with_or_without_brackets() -> None:
    actions = Actions(spaces.MultiDiscrete([2, 3]))
    assert actions.described == "2 integers with commas between them, from 0 to 1, 0 to 2"
    for text in ("<action>1, 2</action>", "<action>[1 2]</action>", "(1,2)"):
        assert actions.read(text).tolist() == [1, 2]
    for text in ("1", "1, 2, 0", "1, 3", "1, -1", "1, x", "9" * 40 + ", 1", "1, " + str(2**63), ""):
        assert actions.read(text) is None
    bits = Actions(spaces.MultiBinary(3))
    assert bits.read("0, 1, 1").tolist() == [0, 1, 1]
    assert bits.read("0, 1, 2") is None
    assert bits.read("0, 1, 257") is None


def test_a_text_is_read_from_its_tag_or_from_the_whole_answer() -> None:
    actions = Actions(spaces.Text(5, charset="abc"))
    assert actions.described == "a text of 1 to 5 characters"
    assert actions.read("I say <action>abc</action>.") == "abc"
    assert actions.read(" cab ") == "cab"
    assert actions.read("abcabc") is None
    assert actions.read("<action>xyz</action>") is None
    assert Actions(None).read("") is None


@given(st.text())
def test_any_answer_is_a_legal_action_or_none(answer: str) -> None:
    for space in (spaces.Discrete(3), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2), spaces.Text(4)):
        action = Actions(space).read(answer)
        assert action is None or space.contains(action)


@given(st.integers(0, 9), st.text(alphabet="ab 12<>/", max_size=20))
def test_the_content_of_the_last_tag_is_the_action(number: int, before: str) -> None:
    assert Actions(spaces.Discrete(10)).read(f"{before}<action>{number}</action>") == number


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ("A door.", "A door."),
        (7, "7"),
        (numpy.int64(7), "7"),
        (numpy.float32(0.123456), "0.1235"),
        ((14, numpy.int64(10), 0), "(14, 10, 0)"),
        (numpy.array([0.5, -1e-7]), "[0.5, -1e-07]"),
        (numpy.array([[1, 2], [3, 4]]), "1 2\n3 4"),
        (numpy.zeros((1, 1, 2), dtype=int), "[[[0, 0]]]"),
        ({"at": numpy.array([1, 2]), "goal": "north"}, "at: [1, 2]\ngoal: north"),
        ([1, 2.5], "[1, 2.5]"),
        (True, "True"),
        (None, "None"),
    ],
)
def test_observations_are_shown_as_text(observation: Any, text: str) -> None:
    assert rendered(observation) == text


def test_numbers_in_counts_the_numbers_of_a_nested_space() -> None:
    assert numbers_in(spaces.Box(0, 1, (3, 4))) == 12
    assert numbers_in(spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.Box(0, 1, (5,)), spaces.Text(9)]))) == 7
    assert numbers_in(None) == 1


def test_colours_of_a_picture_become_brackets_and_a_legend() -> None:
    assert plain_picture("\n\x1b[41mS\x1b[0mFF\nFHG\n") == "[S]FF\nFHG"
    assert plain_picture("|\x1b[34;1mR\x1b[0m|\x1b[43m \x1b[0m|") == "|R|[ ]|\n(R is blue, [ ] is yellow)"
    assert plain_picture("\x1b[1mplain") == "plain"


def test_frozen_lake_can_be_won_and_lost() -> None:
    path = [1, 1, 2, 1, 2, 2]
    settings = {"resources.make": {"is_slippery": False}}
    rollout = play("FrozenLake-v1", *(f"<action>{move}</action>" for move in path), settings=settings)
    assert (rollout.reward, rollout.stop_reason) == (1.0, "terminated")
    first = said(rollout)[0]
    assert first.startswith("You play FrozenLake-v1.\n\nDescription:\n")
    assert "Your action is an integer from 0 to 3. Write it as <action>0</action>." in first
    assert first.endswith("Observation: 0\n[S]FFF\nFHFH\nFFFH\nHFFG")
    hole = play("FrozenLake-v1", "1", "2", settings=settings)
    assert (hole.reward, hole.stop_reason) == (0.0, "terminated")


def test_randomness_comes_from_the_seed() -> None:
    games = {json.dumps(said(play("Blackjack-v1", "1", "0"))) for _ in range(3)}
    assert len(games) == 1
    row = {"responses_create_params": {"input": "Begin."}}
    result = ludus.collect("gymnasium:Blackjack-v1", model=ScriptedModel(["0"]), input=[row], repeats=20)
    assert len({said(rollout)[0] for rollout in result.rollouts}) > 5


def test_an_environments_own_time_limit_truncates_the_game() -> None:
    settings = {"resources.make": {"max_episode_steps": 3}}
    rollout = play("CartPole-v1", "0", "1", settings=settings)
    assert (rollout.reward, rollout.stop_reason) == (3.0, "truncated")


def test_the_model_sees_which_actions_have_an_effect_in_taxi() -> None:
    assert "Actions with an effect now: " in said(play("Taxi-v4", "0", settings={"agent.max_steps": 1}))[0]


def test_an_id_that_a_module_registers_is_found() -> None:
    assert play("gymnasium.envs.toy_text:Blackjack-v1", "0").error is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Blackjak-v1", "Blackjak-v1 cannot be found"),
        ("Pendulum-v1", "Pendulum-v1 cannot be played in text: its actions are Box"),
        ("no_such_package:Maze-v0", "No module named 'no_such_package'"),
    ],
)
def test_a_game_that_cannot_be_played_is_a_one_line_error(name: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        play(name, "0")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_arguments_and_too_large_observations_are_user_errors() -> None:
    with pytest.raises(UserError, match="CartPole-v1 cannot be made: TypeError"):
        play("CartPole-v1", "0", settings={"resources.make": {"colour": "red"}})
    with pytest.raises(UserError, match="shows 401 numbers at a time"):
        ludus.collect(f"gymnasium:{Wide.__module__}:Wide", model=ScriptedModel(["0"]), input=[ROW])


class Wide:
    """Its observations are too large."""

    observation_space = spaces.Box(0, 1, (401,))
    action_space = spaces.Discrete(2)


def test_rescoring_a_gymnasium_id_changes_no_reward(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = ludus.collect(
        "gymnasium:FrozenLake-v1",
        model=ScriptedModel(["hm", "2", "1"]),
        output=run,
        dataset="seeds",
        limit=6,
        repeats=2,
    )
    assert result.metrics["counts"]["completed"] == 12
    rows = [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]
    assert {row["agent_ref"]["name"] for row in rows} == {"gymnasium:FrozenLake-v1"}
    changes = rescore(run)
    assert (changes.counts, changes.drift_count) == ({"unchanged": 12}, 0)


def test_qualification_plays_taxi_perfectly() -> None:
    card = qualify("gymnasium", limit=1, odd=0)  # tests/qualify/test_odd_answers.py plays odd answers
    assert card.passed, [check for check in card.checks if check.status == "failed"]
    assert card.oracle is not None
    assert card.oracle > 1.0
