"""Games of TextArena: moves, self-play with a thread and a reward for each player, replayed verdicts, odd answers."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import needs_installed
from ludus_lab.textarena.generate import row, stream
from ludus_lab.textarena.match import Match, move_of
from ludus_lab.textarena.players import expert_player, random_player
from ludus_lab.textarena.positions import GAMES, read

import ludus
from ludus import Environment, Failure, Response, ScriptedModel, UserError
from ludus.response import message
from ludus.tokens import Tokens

pytestmark = needs_installed("ludus_lab.textarena")


def collect(*rows, model=expert_player, **settings):
    environment = Environment.load("textarena").copy()
    environment.configure(settings)
    return ludus.collect(environment, model=ScriptedModel(model), input=list(rows))


@pytest.mark.parametrize(
    ("answer", "move"),
    [
        ("[4]", "[4]"),
        ("[0]? No: [col 3].", "[col 3]"),
        ("no move", ""),
        ("[]", ""),
        (f"[{'9' * 5000}]", ""),
        ("[[4]]", "[4]"),
        ("[\u0664]", ""),
        ("[4\n]", ""),
    ],
)
def test_the_last_text_in_square_brackets_is_the_move(answer, move):
    assert move_of(answer) == move


def test_in_self_play_each_player_has_a_thread_and_a_reward():
    (rollout,) = collect(row("Nim-v0", "self", 0, 1)).rollouts
    assert rollout.reward == 1.0
    assert rollout.verdict.thread_rewards == {"player_1": 0.0}
    (other,) = rollout.threads
    assert (other.name, other.kind, other.parent) == ("player_1", "agent", None)
    assert len(rollout.calls) == 6
    assert len(other.calls) == 5
    assert "Player 0!" in str(rollout.response.output[0])
    assert "Player 1!" in str(other.items[1])
    assert [other.items[call["at"]]["role"] for call in other.calls] == ["assistant"] * 5


def test_a_player_sees_the_other_player_s_move_and_none_of_the_thoughts():
    (rollout,) = collect(row("Nim-v0", "self", 0, 1), model=lambda r: f"SECRET {expert_player(r)}").rollouts
    shown = [item["content"] for item in rollout.threads[0].items if item.get("role") == "user"]
    assert "[0 2]" in shown[0]
    assert not any("SECRET" in text for text in shown)


def test_a_model_of_its_own_plays_the_other_side_and_is_not_trained_on():
    opponent = "scripted:ludus_lab.textarena.players:random_player"
    (rollout,) = collect(row("ConnectFour-v0", "self", 1, 5), **{"agent.opponent": opponent}).rollouts
    assert rollout.reward == 1.0
    assert [(thread.name, thread.kind) for thread in rollout.threads] == [("player_0", "side")]


def test_self_play_gives_trainers_a_sequence_for_each_player():
    def speak(request):
        known = [*request.tokens.prompt_ids, *request.tokens.generated_ids] if request.tokens else []
        tokens = Tokens([*known, 1, 2, 3], [7, 8], [-0.5, -0.5])
        return Response.of(message(expert_player(request)), tokens=tokens)

    (rollout,) = collect(row("Nim-v0", "self", 0, 1), model=speak).rollouts
    sequences = {sequence.thread: sequence for sequence in rollout.sequences()}
    assert {name: sum(sequence.mask) for name, sequence in sequences.items()} == {"main": 12, "player_1": 10}
    assert (rollout.reward_of("main"), rollout.reward_of("player_1")) == (1.0, 0.0)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("seat", [0, 1])
def test_the_verdict_of_a_match_can_be_replayed_from_its_record(game, seat, tmp_path):
    rows = [row(game, opponent, seat, 3) for opponent in ("self", "random")]
    environment = Environment.load("textarena")
    played = ludus.collect(environment, model=ScriptedModel(random_player), input=rows, output=tmp_path / "run")
    rewards = [(rollout.reward, rollout.verdict.thread_rewards) for rollout in played.rollouts]
    stored = ludus.load(tmp_path / "run")
    for rollout, expected in zip(stored.rollouts, rewards, strict=True):
        session = environment.resources()
        verdict = asyncio.run(session.verify(rollout.task, rollout.response))
        assert (verdict.reward, verdict.thread_rewards) == expected


def test_a_second_invalid_move_in_a_row_loses():
    (rollout,) = collect(row("TicTacToe-v0", "random", 0, 1), model=["I pass."]).rollouts
    assert (rollout.reward, rollout.verdict.values["invalid_moves"], len(rollout.calls)) == (0.0, 2, 2)


def test_a_match_that_is_not_finished_in_time_pays_nobody():
    (rollout,) = collect(row("ConnectFour-v0", "self", 0, 1), **{"agent.max_steps": 3}).rollouts
    assert (rollout.reward, rollout.verdict.thread_rewards, rollout.stop_reason) == (
        0.0,
        {"player_1": 0.0},
        "max_steps",
    )
    assert rollout.verdict.values["finished"] is False


async def test_a_response_without_the_other_player_is_not_judged():
    environment = Environment.load("textarena")
    task = environment.task(row("Nim-v0", "self", 0, 1))
    with pytest.raises(Failure, match="no thread player_1"):
        await environment.resources().verify(task, Response.of(message("[0 2]")))


def test_matches_at_the_same_time_do_not_share_randomness():
    def dice(match):
        shown = []
        while not match.over and len(shown) < 12:
            shown.append(match.show())
            match.play("[roll]" if len(shown) % 3 else "[hold]")
        return shown

    alone = dice(Match("PigDice-v0-short", 4, {1: "random"}))
    random.seed(0)
    before = random.getstate()
    first, second = Match("PigDice-v0-short", 4, {1: "random"}), Match("PigDice-v0-short", 9, {1: "random"})
    dice(second)
    assert dice(first) == alone
    assert random.getstate() == before


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(GAMES), st.lists(st.text(alphabet="[]0123456789colXOholdr \n", max_size=12), max_size=30))
def test_any_answers_end_in_scores(game, answers):
    match = Match(game, 1, {1: "random"})
    for answer in answers:
        if not match.over:
            match.play(answer)
    assert set(match.scores().values()) <= {0.0, 0.5, 1.0}


@pytest.mark.parametrize("game", GAMES)
def test_scripted_players_make_legal_moves_only(game):
    match, shown = Match(game, 2, {}), {0: [], 1: []}
    while not match.over and match.moves < 60:
        seat = match.seat
        shown[seat].append(match.show())
        position = read(game, "\n".join(shown[seat]))
        assert position.best() in position.moves
        match.play(position.best())
    assert match.invalid == {0: 0, 1: 0}


def test_rows_follow_from_the_seed_and_mistakes_are_named():
    rows = list(islice(stream(4), 10))
    assert rows == list(islice(stream(4), 10)) != list(islice(stream(5), 10))
    assert {each["game"] for each in rows} == set(GAMES)
    with pytest.raises(UserError, match="data.game 'Nim' is not a game. Did you mean Nim-v0"):
        next(stream(0, game="Nim"))
    with pytest.raises(UserError, match="data.opponent 'nobody' is not an opponent"):
        next(stream(0, opponent="nobody"))
    with pytest.raises(ValueError, match="is not a game of this environment"):
        Environment.load("textarena").task(row("Go-v0", "self", 0, 1))


def test_a_hundred_matches_at_once_are_all_judged():
    rows = [row(GAMES[number % len(GAMES)], "self", number % 2, number) for number in range(100)]
    environment = Environment.load("textarena")
    result = ludus.collect(environment, model=ScriptedModel(random_player), input=rows, concurrency=100)
    assert [rollout.outcome for rollout in result.rollouts] == ["completed"] * 100
    assert all(
        set(rollout.verdict.thread_rewards) == {f"player_{1 - rollout.task.seat}"} for rollout in result.rollouts
    )
