"""The reward that a task's test script left behind."""

from __future__ import annotations

import json
import math
from typing import Any

from ludus import Failure
from ludus.sandbox import Sandbox

#: Where a test script writes its verdict, under the folder `logs`.
REWARDS = ("logs/verifier/reward.txt", "logs/verifier/reward.json")

_LONGEST = 100_000


async def read_reward(sandbox: Sandbox, root: str) -> float | None:
    """The reward of the first file that is there, or None if there is none. Anything but a number is a failure."""
    for path in REWARDS:
        try:
            text = (await sandbox.read(f"{root}{path}", _LONGEST)).decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Failure("bad_verdict", f"the test script's {path} cannot be read: {error}") from error
        return reward_of(text, path)
    return None


def reward_of(text: str, path: str) -> float:
    """The number in a reward file: the whole text, or `reward` of a JSON object, or its only value."""
    try:
        value: Any = json.loads(text) if path.endswith(".json") else float(text)
        if isinstance(value, dict):
            value = value["reward"] if "reward" in value else value.popitem()[1] if len(value) == 1 else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except (ValueError, KeyError, OverflowError, RecursionError):
        pass
    raise Failure("bad_verdict", f"the test script wrote no finite number to /{path}: {text.strip()!r:.80}")
