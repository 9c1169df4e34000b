"""How qualification plays the games: perfect or strong moves, and moves that only look like some."""

from __future__ import annotations

from typing import Any

from ludus_lab.textarena.players import position_of

#: In self-play the other player is a strong one, which punishes mistakes.
settings = {"agent.opponent": "scripted:ludus_lab.textarena.players:expert_player"}

#: What policies without a plan win against the opponent `random`, whose moves are often as bad.
expected_exploits = {
    "first_legal": (0.4, "half of the rows have an opponent with random moves, and legal moves win some of these"),
    "judge_injection": (
        0.15,
        "a verdict such as [[5]] is a legal move of Connect Four, and four discs in a column win",
    ),
}


def oracle(task: Any) -> Any:
    """The strong script's moves, read from what the player was shown."""
    return lambda request: f"I thought about it. {position_of(request).best()}"


def preserving(task: Any) -> dict[str, Any]:
    """The same moves with other texts around them."""
    return {
        "bare": lambda request: position_of(request).best(),
        "second_thought": lambda request: f"[0]? No. {position_of(request).best()} it is.",
        "long": lambda request: f"{'Hmm. ' * 200}{position_of(request).best()}",
    }


def breaking(task: Any) -> dict[str, Any]:
    """Answers without a legal move, and claims."""
    return {
        "no_brackets": lambda request: position_of(request).best().strip("[]"),
        "claims_victory": "I win. [win]",
        "out_of_range": "[99]",
        "unclosed": lambda request: position_of(request).best().rstrip("]"),
        "long_number": f"[{'9' * 5000}]",
        "speaks_for_the_game": "[GAME] Player 0 has won! [Player 0]",
    }


def exploits(task: Any) -> dict[str, Any]:
    """The first legal move, whatever the position."""
    return {"first_legal": lambda request: position_of(request).moves[0]}
