"""The reward that a task's test script left behind."""

from __future__ import annotations

import json
import math
from typing import Any

from ludus import Failure
from ludus.sandbox import Sandbox

#: Where a test script writes its verdict, under the folder `logs`. The first that is there counts.
REWARDS = ("logs/verifier/reward.json", "logs/verifier/reward.txt")

_LONGEST = 100_000

#: The name of the reward among named values.
KEY = "reward"


async def read_rewards(sandbox: Sandbox, root: str) -> dict[str, float] | None:
    """The named numbers of the first file that is there, or None if there is none. Anything else is a failure."""
    for path in REWARDS:
        try:
            text = (await sandbox.read(f"{root}{path}", _LONGEST)).decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Failure("bad_verdict", f"the test script's {path} cannot be read: {error}") from error
        return rewards_of(text, path)
    return None


def rewards_of(text: str, path: str) -> dict[str, float]:
    """The numbers in a reward file: the whole text as `reward`, or the names and values of a JSON object."""
    try:
        value: Any = json.loads(text) if path.endswith(".json") else float(text)
        named = value if isinstance(value, dict) else {KEY: value}
        if named and all(map(_is_number, named.values())):
            return {str(name): float(number) for name, number in named.items()}
    except (ValueError, OverflowError, RecursionError):
        pass
    what = f"{text.strip()!r:.80}" if text.strip() else "the file is empty"
    raise Failure("bad_verdict", f"the test script wrote no finite number to /{path}: {what}")


def reward_of(named: dict[str, float], key: str = KEY) -> float:
    """The reward among named values: the one of this name, or the only one."""
    if key in named:
        return named[key]
    if len(named) == 1:
        return next(iter(named.values()))
    names = ", ".join(sorted(named))
    hint = f"choose one with --set resources.reward_key={min(named)}"
    raise Failure("bad_verdict", f"the test script wrote the rewards {names:.200}, and none is called {key}: {hint}")


def combined(rewards: list[dict[str, float]], steps: int, *, final: bool) -> dict[str, float]:
    """The rewards of all steps: the last one's, or their means. A step that was not reached counts as 0."""
    rewards = rewards[:steps]
    if final:
        return rewards[-1] if len(rewards) == steps else dict.fromkeys(rewards[-1], 0.0)
    names = dict.fromkeys(name for named in rewards for name in named)
    return {name: sum(named.get(name, 0.0) for named in rewards) / steps for name in names}


def reaches(rewards: dict[str, float], least: float | dict[str, float] | None) -> bool:
    """Whether a step's rewards are good enough to go on."""
    needed = least if isinstance(least, dict) else {KEY: least} if least is not None else {}
    return all(rewards.get(name, float("-inf")) >= number for name, number in needed.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
