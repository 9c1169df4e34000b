"""Games are won and lost by the rules, against the script and against itself. The first heaps are 3, 4, 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any, settings: dict[str, Any] | None = None) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1, settings=settings).rollouts[0]


def take(stones: int, heap: int) -> str:
    return f"<take>{stones} from {heap}</take>"


def test_the_script_never_loses_to_a_mistake():
    rollout = play(take(1, 3), take(1, 2), take(1, 1), take(1, 2), take(1, 3), take(2, 3))
    assert rollout.reward == -1.0


def test_a_model_that_plays_the_winning_moves_wins():
    row = {"responses_create_params": {"input": "Nim."}, "heaps": [2, 1]}
    rollout = ludus.collect(FOLDER, model=ScriptedModel([take(1, 1), take(1, 2)]), input=[row]).rollouts[0]
    assert rollout.verdict is not None
    assert rollout.reward == 1.0
    assert rollout.verdict.turn_rewards == [0.0, 1.0]


def test_a_move_against_the_rules_loses():
    for text in (take(9, 1), take(1, 9), take(0, 1), take(1, 1) + take(1, 2), "I win."):
        assert play(text).reward == -1.0


def test_against_itself_the_winners_last_move_earns_1_and_the_losers_minus_1():
    rollout = play(take(3, 1), take(4, 2), take(5, 3), settings={"resources.opponent": "self"})
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [0.0, -1.0, 1.0]
    assert rollout.reward == 0.0
    assert "You are player 2 now." in str(rollout.response.output)


def test_against_itself_a_move_against_the_rules_pays_the_other_side():
    rollout = play(take(3, 1), take(3, 1), settings={"resources.opponent": "self"})
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [1.0, -1.0]
