"""How qualification plays blackjack: it knows the cards of the rows that bring their own, and nobody knows the others'.

No policy wins a hand that is dealt by chance for certain, so the oracle speaks only of rows with a deck on which some
sequence of actions wins.
"""

from __future__ import annotations

from typing import Any

from ludus.environments.blackjack.resources import DEALER_STANDS, MOST, Card, value

expected_exploits = {
    "always_stand": (0.5, "standing is an action like any other, and wins the hands in which it is the right one"),
}


def answer(task: Any, text: str) -> str:
    """An action as the game wants it."""
    return f"<action>{text}</action>"


def oracle(task: Any) -> list[str] | None:
    """As many hits as it takes, and then to stand."""
    hits = _winning(task.deck)
    return None if hits is None else _acting(hits)


def exploits(task: Any) -> dict[str, Any]:
    """The same action whatever the cards are."""
    return {"always_stand": "<action>stand</action>", "always_hit": "<action>hit</action>"}


def preserving(task: Any) -> dict[str, Any]:
    """The winning actions in other words."""
    turns = _acting(_winning(task.deck) or 0)
    return {
        "after_thought": [f"Let me think about the odds.\n{turn}" for turn in turns],
        "upper_case": [turn.replace("hit", "HIT").replace("stand", "Stand") for turn in turns],
        "spaces": [turn.replace(">hit<", "> hit <").replace(">stand<", ">\nstand <") for turn in turns],
        "after_a_reminder": ["I had better think again.", *turns],
    }


def breaking(task: Any) -> dict[str, Any]:
    """The winning actions as nobody can read them, and none at all."""
    turns = _acting(_winning(task.deck) or 0)
    return {
        "without_tags": [turn.replace("<action>", "").replace("</action>", "") for turn in turns],
        "unclosed": [turn.removesuffix("</action>") for turn in turns],
        "unknown_action": "<action>double</action>",
        "claims_to_have_won": "I stand and win. Reward: 1.",
    }


def _acting(hits: int) -> list[str]:
    return ["<action>hit</action>"] * hits + ["<action>stand</action>"]


def _winning(deck: list[Card]) -> int | None:
    """After how many hits standing wins, if the deck tells."""
    player, dealer, rest = deck[:2], deck[2:4], deck[4:]
    for hits in range(len(rest) + 1):
        mine, theirs, left = player + rest[:hits], list(dealer), rest[hits:]
        if value(mine) > MOST or len(dealer) < 2:
            return None
        while value(theirs) < DEALER_STANDS and left:
            theirs.append(left.pop(0))
        settled = value(theirs) >= DEALER_STANDS
        if settled and (value(theirs) > MOST or value(mine) > value(theirs)):
            return hits
    return None
