"""One hand of blackjack: dealing, reading actions, rewards, and reminders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus import Failure, Response, Rollout, ScriptedModel, Verdict
from ludus.environments.blackjack.resources import CARDS, Blackjack, Card, action_of, value
from ludus.response import message, texts_of
from ludus.testing import disagreement, golden, judge, replay, shared_rows

NAME = "blackjack"
HIT, STAND = "<action>hit</action>", "<action>stand</action>"


def row(*deck: str) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Deal."}, "deck": list(deck)}


def play(task: dict[str, Any], *turns: Any, **options: Any) -> Rollout:
    return ludus.collect(NAME, model=ScriptedModel(list(turns)), input=[task], **options).rollouts[0]


def reward_and_result(rollout: Rollout) -> tuple[float | None, str]:
    assert rollout.verdict is not None, rollout.error
    return rollout.reward, rollout.verdict.values["info"]["result"]


@pytest.mark.parametrize(
    ("task", "turns", "reward", "result"),
    [
        (row("10", "9", "10", "7"), [STAND], 1.0, "win"),
        (row("10", "7", "10", "9"), [STAND], -1.0, "loss"),
        (row("10", "8", "9", "9"), [STAND], 0.0, "draw"),
        (row("5", "6", "9", "8", "10"), [HIT, STAND], 1.0, "win"),
        (row("10", "6", "9", "8", "K"), [HIT, STAND], -1.0, "bust"),
        (row("10", "2", "10", "6", "K"), [STAND], 1.0, "win"),
        (row("A", "K", "A", "A", "9"), [STAND], 0.0, "draw"),
        (row("A", "5", "10", "7", "K", "4"), [HIT, HIT, STAND], 1.0, "win"),
        (row("10", "9", "A", "6"), [STAND], 1.0, "win"),
    ],
)
def test_the_hand_nearer_to_21_wins(task: dict[str, Any], turns: list[str], reward: float, result: str) -> None:
    rollout = play(task, *turns)
    assert reward_and_result(rollout) == (reward, result)
    assert rollout.stop_reason == "terminated"
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [0.0] * (len(turns) - 1 if result != "bust" else 0) + [reward]


def test_the_model_sees_its_hand_and_one_card_of_the_dealer() -> None:
    rollout = play(row("A", "6", "10", "8", "3"), HIT, STAND)
    assert rollout.response is not None
    said = [texts_of(item) for item in rollout.response.output]
    assert said[0] == f"Your hand: [A, 6] = 17\nDealer shows: 10\nRespond with {HIT} or {STAND}."
    assert said[2].startswith("Your hand: [A, 6, 3] = 20\nDealer shows: 10\n")
    assert not any("8" in text for text in said)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (HIT, "hit"),
        ("I think.\n<ACTION> Stand\n</Action> Yes.", "stand"),
        (f"{HIT} or {STAND}", "hit"),
        (f"<action>double</action> {STAND}", "stand"),
        ("<action>hit", None),
        ("<action>hit or stand</action>", None),
        ("hit", None),
        ("<action></action>", None),
        ("", None),
        ("<action>" * 100_000, None),
        ("<action>" + " " * 300_000 + "hit", None),
    ],
)
def test_an_action_is_read_only_between_its_tags(text: str, action: str | None) -> None:
    assert action_of(text) == action


@pytest.mark.parametrize("text", ["I stand.", "<action>double</action>", "<action>stand", "", "\u0000<action>\ud800"])
async def test_an_answer_without_an_action_is_not_a_stand_except_in_compat(text: str) -> None:
    winning = row("10", "9", "10", "7")
    verdict = await judge(NAME, winning, Response.of(message(text)))
    assert isinstance(verdict, Verdict)
    assert (verdict.reward, verdict.values["terminated"], verdict.values["truncated"]) == (0.0, False, True)
    verdict = await judge(NAME, winning, Response.of(message(text)), compat=True)
    assert isinstance(verdict, Verdict)
    assert (verdict.reward, verdict.values["terminated"]) == (1.0, True)


def test_refusing_to_play_loses_the_hand() -> None:
    deck = row("10", "6", "10", "10")
    assert reward_and_result(play(deck, "I would rather not.")) == (-1.0, "forfeit")
    assert reward_and_result(play(deck, {"items": []})) == (-1.0, "forfeit")
    assert reward_and_result(play(deck, {"call": "stand"})) == (-1.0, "forfeit")
    assert len(play(deck, "No.", settings={"resources.reminders": 0}).calls) == 1


def test_an_action_resets_the_reminder_count_and_a_reminder_deals_no_card() -> None:
    rollout = play(row("2", "2", "10", "8", "2", "2", "Q"), "?", "?", HIT, "?", "?", HIT, "?", STAND)
    assert reward_and_result(rollout) == (-1.0, "loss")
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [0.0] * 7 + [-1.0]


def test_a_long_hand_is_played_to_its_end() -> None:
    aces: list[str] = ["A"] * 21
    rollout = play(row("A", "A", "10", "8", *aces), *[HIT] * 19, STAND)
    assert reward_and_result(rollout) == (1.0, "win")
    cut = play(row("A", "A", "10", "8", *aces), *[HIT] * 19, STAND, settings={"agent.max_steps": 5})
    assert (cut.reward, cut.stop_reason) == (0.0, "max_steps")


def hands(seed: int) -> list[str]:
    plain = {"responses_create_params": {"input": "Deal."}}
    rollouts = ludus.collect(NAME, model=ScriptedModel([STAND]), input=[plain], repeats=8, seed=seed).rollouts
    return [rollout.verdict.values["info"]["player"] for rollout in rollouts if rollout.verdict]


def test_the_same_seed_deals_the_same_cards() -> None:
    assert hands(1) == hands(1) != hands(2)
    assert len(set(hands(1))) > 1


@pytest.mark.parametrize("deck", [["11"], [10], ["a"], "10", None])
async def test_a_deck_that_is_not_a_list_of_cards_is_refused(deck: Any) -> None:
    failure = await judge(NAME, {**row(), "deck": deck}, STAND)
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"


@given(st.lists(st.sampled_from(CARDS), max_size=12))
def test_a_hand_is_worth_its_highest_value_up_to_21(hand: list[Card]) -> None:
    low = sum({"A": 1, "J": 10, "Q": 10, "K": 10}.get(card) or int(card) for card in hand)
    worth = {low + 10 * elevens for elevens in range(hand.count("A") + 1)}
    fitting = [total for total in worth if total <= 21]
    assert value(hand) == (max(fitting) if fitting else low)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(CARDS), max_size=8), st.lists(st.sampled_from([HIT, STAND, "?"]), min_size=1))
async def test_every_game_ends_in_a_win_a_draw_or_a_loss(deck: list[Card], turns: list[str]) -> None:
    game, task = Blackjack(), Blackjack.Task.model_validate(row(*deck))
    await game.begin(task)
    for turn in [*turns, STAND]:
        if not game.over:
            await game.advance(task, Response.of(message(turn)))
    verdict = await game.verify(task, Response.of())
    info = verdict.values["info"]
    assert verdict.reward == {"win": 1.0, "draw": 0.0}.get(info["result"], -1.0)
    assert sum(step.reward != 0 for step in game.steps) <= 1
    if info["result"] in ("win", "draw", "loss"):
        assert info["dealer_value"] >= 17
        assert info["player_value"] <= 21


def test_the_example_rows_can_be_played() -> None:
    rollouts = ludus.collect(NAME, model=ScriptedModel([STAND])).rollouts
    assert len(rollouts) >= 5
    assert all(rollout.reward is not None for rollout in rollouts)


def test_public_rows_load() -> None:
    assert [Blackjack.Task.model_validate(row) for row in shared_rows(NAME)]


@pytest.mark.parametrize("compat", [False, True])
async def test_hands_and_verdicts_agree_with_the_reference(compat: bool) -> None:
    lines = list(golden(NAME))
    for line in lines:
        if line["kind"] == "tool":  # the reference's function for a hand's value; no model can call it
            assert [value(call["arguments"]["hand"]) for call in line["calls"]] == line["reference_outputs"]
        else:
            verdict = await replay(NAME, line, compat=compat)
            free = line["class"] == "hole" and not compat
            assert disagreement(line, verdict, free=free) is None, line["note"]
            steps = line["reference_extra"]["steps"]
            if not free:
                assert verdict.turn_rewards == [step["reward"] for step in steps]
                assert verdict.values["info"] == steps[-1]["info"]
    assert lines
