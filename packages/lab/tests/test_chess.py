"""Chess against Stockfish: reading moves, results, replies that follow from the position, and hostile answers."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import needs_installed, oracle_rewards
from ludus_lab.chess.engine import Engines
from ludus_lab.chess.generate import endgames, games, row

import ludus
from ludus import ScriptedModel

pytestmark = needs_installed("ludus_lab.chess")
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"


def play(fen, *turns, goal="win", moves=10, **options):
    values = {f"resources.{key}": value for key, value in {"engines": 1, "nodes": 500, **options}.items()}
    environment = ludus.Environment.load("chess").copy()
    environment.configure(values)
    rows = [row(fen, goal=goal, moves=moves)]
    (rollout,) = ludus.collect(environment, model=ScriptedModel(list(turns)), input=rows).rollouts
    return rollout


class EndedEngine:
    """An engine whose process has ended by itself."""

    def __init__(self):
        self.transport, self.closed = self, False

    async def quit(self):
        raise ConnectionError

    def kill(self):
        raise ProcessLookupError

    def close(self):
        self.closed = True


async def test_the_pipes_of_a_process_that_has_ended_are_closed():
    engine = EndedEngine()
    await Engines([engine]).close()
    assert engine.closed


@pytest.mark.parametrize("move", ["d1d8", "Rd8", "Rd8#", " Rd8# "])
def test_a_mate_in_any_notation_wins(move):
    rollout = play(MATE_IN_ONE, f"I see it: <move>{move}</move>")
    assert rollout.reward == 1.0
    assert rollout.verdict.values["info"]["result"] == "win"
    assert rollout.verdict.components == {"goal": 1.0, "accuracy": 1.0}


@pytest.mark.parametrize(
    "move", ["0000", "--", "Z0", "@@@@", "d1d9", "a7a8q", "O-O", "Ke9", "x" * 5000, "\u00b2\u00b2"]
)
def test_an_illegal_or_a_null_move_never_passes_the_turn(move):
    rollout = play(MATE_IN_ONE, f"<move>{move}</move>")
    assert (rollout.reward, rollout.verdict.values["info"]) == (
        0.0,
        {"result": "no legal move", "moves": 0, "fen": MATE_IN_ONE},
    )


def test_a_game_that_is_not_won_in_time_earns_nothing():
    rollout = play("3qk3/8/8/8/8/8/8/3QK3 w - - 0 1", "<move>Qd7</move>", moves=1)
    assert (rollout.reward, rollout.stop_reason) == (0.0, "truncated")
    assert rollout.verdict.components["accuracy"] < 1


def test_a_draw_is_paid_only_where_the_goal_is_to_hold():
    stalemate = "7k/5Q2/5K2/8/8/8/8/8 w - - 0 1"
    assert play(stalemate, "<move>Qg6</move>").reward == 0.0
    assert play(stalemate, "<move>Qg6</move>", goal="hold").reward == 1.0


def test_the_same_moves_lead_to_the_same_game():
    moves = [f"<move>{move}</move>" for move in ("e2e4", "d2d4", "g1f3")]
    start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
    boards = [play(start, *moves, moves=3, mistakes=0.5).verdict.values["info"]["fen"] for _ in range(2)]
    assert boards[0] == boards[1]


@pytest.mark.parametrize("fen", ["", "x", "8/8/8/8/8/8/8/8 w - - 0 1", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "9" * 99])
def test_a_row_with_an_impossible_position_fails_and_is_not_scored(fen):
    environment = ludus.Environment.load("chess").copy()
    environment.configure({"resources.engines": 1})
    result = ludus.collect(environment, model=ScriptedModel(["x"]), input=[row(fen, moves=3)])
    assert [failed.error.kind for failed in result.failures()] == ["bad_row"]


@settings(max_examples=30)
@given(st.text())
def test_any_text_is_read_as_a_legal_move_or_none(text):
    import chess
    from ludus_lab.chess.resources import move_of

    board = chess.Board()
    for answer in (text, f"<move>{text}</move>"):
        move = move_of(answer, board)
        assert move is None or move in board.legal_moves


@pytest.mark.parametrize("generate", [endgames, games])
def test_generated_positions_are_playable_and_follow_from_the_seed(generate):
    import chess

    rows = list(islice(generate(3), 20))
    assert rows == list(islice(generate(3), 20))
    assert all(chess.Board(each["fen"]).is_valid() and not chess.Board(each["fen"]).is_game_over() for each in rows)


async def test_sixteen_games_at_once_share_two_engines():
    rewards = await oracle_rewards("chess", sessions=16, at_once=16, **{"resources.engines": 2})
    assert rewards == [1.0] * 16
