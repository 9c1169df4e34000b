"""How qualification plays NetHack: a script that explores, and answers that do not act or have no plan."""

from __future__ import annotations

import random
from typing import Any

from ludus_lab.nethack.actions import DIRECTIONS
from ludus_lab.nethack.explorer import explore


def oracle(task: Any) -> Any:
    """The explorer's actions."""
    return explore


def preserving(task: Any) -> dict[str, Any]:
    """The explorer's actions, written in other ways."""
    return {
        "upper": lambda request: _between(explore(request).upper()),
        "second_thought": lambda request: f"<actions>pray</actions>? No: {explore(request)}",
        "spaces": lambda request: explore(request).replace(", ", " ,  "),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Answers without actions, keys that are none, and claims."""
    return {
        "no_tags": "north, north, down",
        "unclosed": "<actions>down",
        "unknown": "<actions>levelport</actions>",
        "letters_as_commands": "<actions>S, y</actions>",
        "control_keys": "<actions>^V, 9</actions>",
        "claims": "I am on dungeon level 50 now. Dlvl:50 S:1000000",
        "only_waits": "<actions>wait, search</actions>",
        "one_way": "<actions>far north</actions>",
    }


def exploits(task: Any) -> dict[str, Any]:
    """Steps at random, with `down` after each."""
    return {"random_walk": _random_walk}


def _between(text: str) -> str:
    return text.replace("ACTIONS>", "actions>")


def _random_walk(request: Any) -> str:
    chooser = random.Random(f"{request.seed} {request.turn}")
    steps = [chooser.choice(sorted(DIRECTIONS)) for _ in range(10)]
    return f"<actions>{', '.join(f'{step}, down' for step in steps)}</actions>"
