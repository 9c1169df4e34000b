"""Near misses: a right rollout with one change in its tool calls, which should cost the reward.

An argument is changed (a number by one, a text to another text, a boolean flipped), a call is left out, or a call is
made twice. Such a change may be harmless, for example in a search. So a near miss counts only if it left the session in
another state than the right rollout did. An attribute of the session is compared if it is the same after two right
rollouts with different seeds and after every accepted variant of `preserving(task)`. So random values, times and logs
of calls are left out. A verifier that reads the calls themselves has no state: its author writes `breaking(task)`.

A near miss that counts and earns as much as the right rollout is a finding to look at: `>=` where the task means `==`.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ludus.environment import Environment
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response
from ludus.runtime.threads import awaited
from ludus_qualify.attempts import Attempt, Script, play, shown
from ludus_qualify.checks import Check, Played
from ludus_qualify.rates import MAX_EXAMPLES, Rate, Thresholds, credit_of
from ludus_qualify.session_state import attributes_of

#: The name of near misses in `expected_exploits`, and of their check.
FAMILY = "near_miss"
CHECK = "near misses"

#: How many changes of a right rollout are played.
MOST = 8

#: Rewards are equal up to this.
EXACT = 1e-9

#: The value of a verdict that holds the digests of the session's attributes.
STATE = "qualify_state"

Call = dict[str, Any]


@dataclass(frozen=True)
class NearMiss:
    """A script with one changed call. `change` says what was done to it."""

    change: str
    script: Script


@dataclass(frozen=True)
class _Row:
    """A row's right rollouts, the oracle's first and twice, and its near misses."""

    right: list[Attempt]
    misses: list[Attempt]


def near_misses(script: Script, rng: random.Random, most: int = MOST) -> list[NearMiss]:
    """Up to `most` near misses of a script, in the order of its calls. A function as a script has none."""
    turns = [script] if isinstance(script, dict) else script
    if not isinstance(turns, list):
        return []
    places = [(at, turn, _calls(turn)) for at, turn in enumerate(turns) if isinstance(turn, dict)]
    texts = sorted({text for _, _, calls in places for call in calls for text in _texts(_arguments(call))})
    misses = []
    for at, turn, calls in places:
        for position, call in enumerate(calls):
            for change, instead in _changes(call, texts):
                changed = {**turn, "calls": [*calls[:position], *instead, *calls[position + 1 :]]}
                changed.pop("call", None)
                changed.pop("arguments", None)
                kept = [changed] if changed["calls"] or changed.keys() - {"calls"} else []
                misses.append(NearMiss(change, [*turns[:at], *kept, *turns[at + 1 :]]))
    chosen = sorted(rng.sample(range(len(misses)), min(most, len(misses))))
    return [misses[index] for index in chosen]


async def play_near_misses(
    environment: Environment,
    attempts: list[Attempt],
    expected: dict[str, tuple[float, str]],
    thresholds: Thresholds,
    *,
    seed: int,
    concurrency: int,
) -> tuple[Rate, list[Check]]:
    """Play the near misses of all right rollouts. Returns how many earned the full reward, and the check.

    Without a near miss that counts there is no check.
    """
    rows = _rows(attempts, seed)
    recording = _recording_state(environment)

    async def played_of(chosen: list[Attempt]) -> Played:
        return await play(recording, chosen, concurrency=concurrency, seed=seed) if chosen else {}

    played = await played_of([attempt for row in rows for attempt in row.right])
    compared = [(row, *_right_end(row, played, thresholds)) for row in rows]
    compared = [(row, full, state) for row, full, state in compared if state]
    played |= await played_of([attempt for row, _, _ in compared for attempt in row.misses])
    total, findings = 0, list[str]()
    for row, full, state in compared:
        for attempt in row.misses:
            changed = _changed_attributes(attempt, state, played)
            total += bool(changed)
            if changed and credit_of(played, attempt, thresholds) >= full - EXACT:
                reward, names = played[attempt.id].reward, ", self.".join(changed)
                change = attempt.name.removeprefix(f"{FAMILY}/")
                findings.append(f"{change} earned {reward:g} and changed self.{names}")
    rate = Rate(len(findings), total, findings[:MAX_EXAMPLES])
    return rate, _check(rate, *expected.get(FAMILY, (0.0, "")))


def _rows(attempts: list[Attempt], seed: int) -> list[_Row]:
    """The rows whose right rollout calls tools."""
    variants: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.kind == "preserving":
            variants[attempt.task_id].append(attempt)
    rows = []
    for oracle in (attempt for attempt in attempts if attempt.kind == "oracle"):
        changes = near_misses(oracle.script, random.Random(f"{FAMILY}/{seed}/{oracle.task_id}"))
        misses = [
            replace(oracle, kind="near_miss", name=f"{FAMILY}/{miss.change}", script=miss.script, number=number)
            for number, miss in enumerate(changes)
        ]
        right = [oracle, replace(oracle, number=1), *variants[oracle.task_id]]
        rows += [_Row(right, misses)] if misses else []
    return rows


def _right_end(row: _Row, played: Played, thresholds: Thresholds) -> tuple[float, dict[str, str]]:
    """What a right rollout earns, and the attributes that are equal after all of them, with their digests."""
    full = min(credit_of(played, attempt, thresholds) for attempt in row.right[:2])
    paid = [attempt for attempt in row.right if credit_of(played, attempt, thresholds) >= full - EXACT]
    if full <= 0:
        return full, {}
    first, *others = (_state(played, attempt) for attempt in paid)
    return full, {name: digest for name, digest in first.items() if all(it.get(name) == digest for it in others)}


def _check(rate: Rate, most: float, why: str) -> list[Check]:
    if rate.value is None:
        return []
    if rate.value <= most:
        return [Check(CHECK, "ok", why if rate.wrong else "")]
    count = f"{rate.wrong} of {rate.total} near misses earned the full reward"
    return [Check(CHECK, "look", f"{count}, first: {rate.examples[0]}", count)]


def _changed_attributes(attempt: Attempt, same: dict[str, str], played: Played) -> list[str]:
    state = _state(played, attempt)
    return [name for name, digest in same.items() if state.get(name, digest) != digest]


def _state(played: Played, attempt: Attempt) -> dict[str, str]:
    verdict = played[attempt.id].verdict
    state: dict[str, str] = verdict.values.get(STATE, {}) if verdict is not None else {}
    return state


def _recording_state(environment: Environment) -> Environment:
    """The environment, with verdicts that hold digests of the session's attributes."""
    base = environment.resources

    async def verify(self: Resources, task: Any, response: Response) -> Verdict:
        state = attributes_of(self)
        verdict = Verdict.of(await awaited(base.verify, self, task, response), base.verify)
        verdict.values = {**verdict.values, STATE: state}
        return verdict

    recording: type[Resources] = type(base.__name__, (base,), {"verify": verify, "__module__": base.__module__})
    return replace(environment, resources=recording)


def _changes(call: Call, texts: list[str]) -> Iterator[tuple[str, list[Call]]]:
    """Each change of a call, in words, and the calls in its place."""
    name, arguments = call["name"], _arguments(call)
    yield f"without {_written(name, arguments)}", []
    yield f"{_written(name, arguments)} twice", [call, call]
    if not isinstance(arguments, dict):
        return
    for changed in _with_one_change(arguments, texts):
        written = changed if isinstance(call.get("arguments"), dict) else json.dumps(changed)
        yield f"{_written(name, changed)} for {_written(name, arguments)}", [{**call, "arguments": written}]


def _with_one_change(value: Any, texts: list[str]) -> Iterator[Any]:
    """Values that differ from a JSON value in one number, text or boolean."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: changed} for changed in _with_one_change(part, texts))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], changed, *value[at + 1 :]] for changed in _with_one_change(part, texts))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1)
    elif isinstance(value, str) and value:
        yield from _other_texts(value, texts)


def _other_texts(text: str, texts: list[str]) -> Iterator[str]:
    """Of a number: one more and one less. Of another text: another text of the script, and another last letter."""
    if text.lstrip("-").isdecimal():
        yield from (str(int(text) + 1), str(int(text) - 1))
        return
    other = next((other for other in texts if other != text), None)
    if other is not None:
        yield other
    yield text[:-1] + ("y" if text[-1] != "y" else "z")


def _calls(turn: dict[str, Any]) -> list[Call]:
    """The calls of a turn, in the order in which a scripted model makes them."""
    first = [{"name": turn["call"], "arguments": turn.get("arguments") or {}}] if turn.get("call") else []
    return [*first, *(turn.get("calls") or [])]


def _arguments(call: Call) -> Any:
    return _parsed(call.get("arguments") or {})


def _parsed(value: Any) -> Any:
    """A JSON text as its value; anything else unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) and value.lstrip().startswith("{") else value
    except ValueError:
        return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


def _written(name: str, arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return f"{name}({shown(repr(arguments))})"
    return f"{name}({shown(', '.join(f'{key}={value!r}' for key, value in arguments.items()))})"
