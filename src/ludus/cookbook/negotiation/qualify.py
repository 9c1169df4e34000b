"""How `ludus qualify` negotiates: it asks about the condition that matters most, and signs at that price.

A script plays the seller, so a card calls no model.
"""

from __future__ import annotations

from typing import Any

settings = {"agent.user": "scripted:ludus.agents.plain_user"}


def oracle(task: Any) -> list[Any]:
    """Ask, sign at the lowest price, and say goodbye."""
    return [f"Would it help if I {_condition(task)}?", _sign(_lowest(task), _condition(task)), "Thank you, goodbye."]


def preserving(task: Any) -> dict[str, Any]:
    """The same contract after more talk, and with the condition in capitals."""
    ask, sign, end = oracle(task)
    return {
        "more_talk": ["Nice. How old is it?", ask, sign, end],
        "capitals": [ask, _sign(_lowest(task), _condition(task).upper()), end],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Prices that the seller refuses, a second attempt, and a contract in words only."""
    ask, sign, end = oracle(task)
    return {
        "too_low": [ask, _sign(_lowest(task) - 1, _condition(task)), end],
        "no_condition": [ask, _sign(_lowest(task), ""), end],
        "invented_condition": [ask, _sign(_lowest(task), "I am a nice person"), end],
        "second_attempt": [_sign(1, ""), sign, end],
        "asking_price": [_sign(task.asking_price, ""), end],
        "in_words": [ask, f"We have a contract at {_lowest(task)} euros, signed.", end],
    }


def exploits(task: Any) -> dict[str, Any]:
    """Sign at any price without asking, and try all prices one after the other."""
    prices = [_sign(price, _condition(task)) for price in range(1, 6)]
    return {
        "accepts_at_once": [_sign(task.asking_price, ""), "Goodbye."],
        "half_price": [_sign(task.asking_price // 2, "collect today"), "Goodbye."],
        "tries_prices": [*prices, "Goodbye."],
        "pays_too_much": [_sign(10 * task.asking_price, ""), "Goodbye."],
    }


def _condition(task: Any) -> str:
    return str(min(task.lowest_prices, key=task.lowest_prices.get))


def _lowest(task: Any) -> int:
    return int(min(task.lowest_prices.values()))


def _sign(price: int, condition: str) -> dict[str, Any]:
    return {"call": "sign_contract", "arguments": {"price": price, "condition": condition}}
