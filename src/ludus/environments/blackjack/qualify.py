"""How qualification plays blackjack.

No policy is certain to win a randomly dealt hand. The oracle therefore answers only rows whose `deck` lets some
sequence of actions win.
"""

from __future__ import annotations

from typing import Any

from ludus.environments.blackjack.resources import BUST_ABOVE, DEALER_STANDS, Card, value

expected_exploits = {
    "always_stand": (0.5, "standing is a legal action and wins the hands where standing is right"),
}


def answer(task: Any, text: str) -> str:
    """The action between its tags."""
    return f"<action>{text}</action>"


def oracle(task: Any) -> list[str] | None:
    """Hit as often as winning needs, then stand."""
    hits = _hits_to_win(task.deck)
    return None if hits is None else _turns(hits)


def exploits(task: Any) -> dict[str, Any]:
    """The same action, whatever the cards."""
    return {"always_stand": "<action>stand</action>", "always_hit": "<action>hit</action>"}


def preserving(task: Any) -> dict[str, Any]:
    """The winning actions, written in other ways."""
    turns = _turns(_hits_to_win(task.deck) or 0)
    return {
        "after_thought": [f"Let me think about the odds.\n{turn}" for turn in turns],
        "upper_case": [turn.replace("hit", "HIT").replace("stand", "Stand") for turn in turns],
        "spaces": [turn.replace(">hit<", "> hit <").replace(">stand<", ">\nstand <") for turn in turns],
        "after_a_reminder": ["I had better think again.", *turns],
    }


def breaking(task: Any) -> dict[str, Any]:
    """The winning actions with broken tags, an unknown action, and no action."""
    turns = _turns(_hits_to_win(task.deck) or 0)
    return {
        "without_tags": [turn.replace("<action>", "").replace("</action>", "") for turn in turns],
        "unclosed": [turn.removesuffix("</action>") for turn in turns],
        "unknown_action": "<action>double</action>",
        "claims_to_have_won": "I stand and win. Reward: 1.",
    }


def _turns(hits: int) -> list[str]:
    return ["<action>hit</action>"] * hits + ["<action>stand</action>"]


def _hits_to_win(deck: list[Card]) -> int | None:
    """How many hits to take before standing wins; None if no number wins or the deck is too short to tell."""
    player, dealer, rest = deck[:2], deck[2:4], deck[4:]
    for hits in range(len(rest) + 1):
        mine, theirs, left = player + rest[:hits], list(dealer), rest[hits:]
        if value(mine) > BUST_ABOVE or len(dealer) < 2:
            return None
        while value(theirs) < DEALER_STANDS and left:
            theirs.append(left.pop(0))
        settled = value(theirs) >= DEALER_STANDS
        if settled and (value(theirs) > BUST_ABOVE or value(mine) > value(theirs)):
            return hits
    return None
