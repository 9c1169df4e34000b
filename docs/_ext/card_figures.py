"""Measures the built-in environments for their cards, and writes the figures to `cards.json` beside this file.

    python docs/_ext/card_figures.py            # all environments: some minutes
    python docs/_ext/card_figures.py mcqa       # one
    python docs/_ext/card_figures.py --rows 2 terminal     # fewer rows, where each runs programs for seconds
    python docs/_ext/card_figures.py --only-odd --odd 1000 mcqa     # its odd answers; the other figures stay

For each environment: the card of `ludus qualify`, one rollout of its oracle as a conversation, and the time of a
verdict. Everything runs offline, with scripts in place of models. The file is committed; run this again after a change
of a verifier, of its rows or of its `qualify.py`. Use a quiet machine: an environment with time limits fails its check
of isolation where other work takes the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from ludus_qualify.attempts import Attempt, play
from ludus_qualify.card import Card
from ludus_qualify.oracle import Oracle
from ludus_qualify.rates import odd_rate
from ludus_qualify.rivals import among_rivals
from ludus_qualify.run import CONCURRENCY, odd_attempts, qualify

from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.folder import folders
from ludus.rollout import Rollout

FILE = Path(__file__).with_name("cards.json")
ROWS, ODD = 8, 1000
MAX_TEXT, MAX_MESSAGES, MAX_VERDICTS = 900, 14, 5


def main(arguments: list[str]) -> None:
    """Measure the named environments, or all, and write the file after each."""
    parser = argparse.ArgumentParser(description="Measure environments for their cards.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--odd", type=int, default=ODD)
    parser.add_argument("--only-odd", action="store_true")
    given = parser.parse_args(arguments)
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    known = folders()
    for name in given.names or sorted(known):
        print(f"{name}: measuring", file=sys.stderr)
        if not given.only_odd:
            kept[name] = measure(name, given.rows, given.odd)
        elif "card" in kept[name]:
            kept[name]["card"] |= measure_odd(name, given.rows, given.odd)
        lines = [f"{json.dumps(each)}: {json.dumps(_rounded(kept[each]), ensure_ascii=False)}" for each in sorted(kept)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measure_odd(name: str, rows: int, odd: int) -> dict[str, Any]:
    """How many odd answers were tried, and the share of them that ended without a verdict."""
    environment = Environment.load(name).copy()
    oracle = Oracle.of(environment)
    environment.configure(oracle.settings)
    survey = Rows(environment.rows(None), environment.task, rows, 0, environment.with_prompt)
    attempts = odd_attempts(survey, oracle, odd, seed=0)
    played = asyncio.run(play(among_rivals(environment, oracle), attempts, concurrency=CONCURRENCY, seed=0))
    rate = odd_rate(attempts, played)
    return {"odd_answers": rate.total, "odd_failure_rate": rate.wrong / rate.total}


def measure(name: str, rows: int = ROWS, odd: int = ODD) -> dict[str, Any]:
    """The figures of one environment, or why there are none on this machine."""
    try:
        card = qualify(name, limit=rows, odd=odd)
        played = asyncio.run(_play_oracle(name, rows))
    except UserError as error:
        return {"missing": re.sub(r"pip install -e '.*\[", "pip install 'ludus-gym[", str(error))}
    scored = [each for each in played if each.reward is not None]
    if not scored:
        return {"missing": _first_failure(played), "card": _short_card(card)}
    seconds = statistics.median(each.timings.get("verify", 0.0) for each in scored)
    best = max(scored, key=lambda each: each.reward or 0.0)
    return {"card": _short_card(card), "verdict_ms": float(f"{1000 * seconds:.2g}"), "example": _example(best)}


async def _play_oracle(name: str, limit: int) -> list[Rollout]:
    """Rollouts of the oracle over the first rows that it has a script for."""
    environment = Environment.load(name).copy()
    oracle = Oracle.of(environment)
    environment.configure(oracle.settings)
    environment = among_rivals(environment, oracle)
    attempts: list[Attempt] = []
    for task_id, row, task in Rows(environment.rows(None), environment.task, limit, 0, environment.with_prompt):
        script = oracle.script(task)
        if script is not None and len(attempts) < MAX_VERDICTS:
            attempts.append(Attempt(task_id, row, "oracle", "oracle", script))
    played = await play(environment, attempts, concurrency=1, seed=0)
    return list(played.values())


def _first_failure(played: list[Rollout]) -> str:
    errors = [str(each.error) for each in played if each.error is not None]
    return errors[0] if errors else "no row contains its answer, so no right rollout can be made without a model"


def _short_card(card: Card) -> dict[str, Any]:
    row = card.to_row()
    kept = (
        "verdict",
        "not_shown",
        "rows",
        "attempts",
        "chance",
        "oracle",
        "false_positive_rate",
        "false_negative_rate",
        "odd_answers",
        "odd_failure_rate",
    )
    near = row["near_misses"]
    attacked = ("cheats", "oracles_failed") if row["cheats"]["total"] else ()
    return {
        **{key: row[key] for key in kept},
        **({"near_misses": {key: near[key] for key in ("wrong", "total")}} if near["total"] else {}),
        **({name: {key: row[name][key] for key in ("wrong", "total")} for name in attacked} if attacked else {}),
        "exploits": [{key: each[key] for key in ("best", "reward", "limit", "why")} for each in row["exploits"]],
        "checks": [{key: each[key] for key in ("name", "status", "reason")} for each in row["checks"]],
    }


def _example(rollout: Rollout) -> dict[str, Any]:
    messages = [_message(each) for each in rollout.messages()]
    return {
        "messages": messages[:MAX_MESSAGES],
        "left_out": max(0, len(messages) - MAX_MESSAGES),
        "reward": rollout.reward,
        "stop_reason": rollout.stop_reason,
    }


def _message(given: dict[str, Any]) -> dict[str, Any]:
    content = given.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = [
        {"name": call["function"]["name"], "arguments": _cut(call["function"]["arguments"])}
        for call in given.get("tool_calls") or ()
    ]
    return {"role": given["role"], "text": _cut(content or ""), **({"calls": calls} if calls else {})}


def _rounded(value: Any) -> Any:
    """The same JSON with three decimals in every number."""
    if isinstance(value, dict):
        return {key: each if key == "verdict_ms" else _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ..."


if __name__ == "__main__":
    main(sys.argv[1:])
