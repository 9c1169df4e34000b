"""How qualification plays: perfectly, if the environment has a table `P` of its transitions.

The default environment, Taxi, has this table. For an environment without it, or one made with other arguments, the
oracle does not know the best actions, and its reward has no meaning.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ludus.model import Request
from ludus.response import texts_of

settings = {"agent.max_steps": 25}

#: The discount of a reward for each step until it is earned.
DISCOUNT = 0.99

_NAME = re.compile(r"^You play (.+)\.$", re.MULTILINE)
_STATE = re.compile(r"^Observation: (\d+)$", re.MULTILINE)


def answer(task: Any, text: str) -> str:
    """The action between its tags."""
    return f"<action>{text}</action>"


def oracle(task: Any) -> Any:
    """The best action in every state."""
    return _policy(lambda action: f"<action>{action}</action>")


def preserving(task: Any) -> dict[str, Any]:
    """The best actions, written in other ways."""
    return {
        "boxed": _policy(lambda action: rf"That must be \boxed{{{action}}}"),
        "number": _policy(lambda action: f"Of 9 ideas this is the best: {action}"),
        "changed_mind": _policy(lambda action: f"<action>0</action>? No: <ACTION> {action} </ACTION>"),
    }


def breaking(task: Any) -> dict[str, Any]:
    """The best actions in places that are not read, and illegal actions."""
    return {
        "unclosed": _policy(lambda action: f"<action>{'abcdef'[action % 6]}"),
        "with_a_word": _policy(lambda action: f"<action>go {action}</action>"),
        "out_of_range": "<action>600</action>",
        "in_words": "I deliver the passenger. Reward: twenty.",
    }


def _policy(answer_with: Any) -> Any:
    def turn(request: Request) -> str:
        said = [texts_of(item) for item in request.input if item.get("role") == "user"]
        name = next((match[1] for text in said if (match := _NAME.search(text))), "")
        state = _STATE.search(said[-1])
        best = _best_actions(name)
        return str(answer_with(best[int(state[1])])) if state and best else "I do not know this game."

    return turn


@lru_cache(maxsize=4)
def _best_actions(name: str) -> dict[int, int]:
    """The best action in each state, by value iteration over the table `P`; empty if there is no table."""
    import gymnasium

    table = getattr(gymnasium.make(name, disable_env_checker=True).unwrapped, "P", None) if name else None
    if table is None:
        return {}
    worth = dict.fromkeys(table, 0.0)

    def value(state: Any, action: Any) -> float:
        leads_to = table[state][action]
        return float(
            sum(p * (reward + (0.0 if over else DISCOUNT * worth[then])) for p, then, reward, over in leads_to)
        )

    for _ in range(1000):
        before = dict(worth)
        for state in table:
            worth[state] = max(value(state, action) for action in table[state])
        if max(abs(worth[state] - before[state]) for state in table) < 1e-6:
            break
    return {int(state): int(max(table[state], key=lambda action: value(state, action))) for state in table}
