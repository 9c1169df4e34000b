"""AgentDojo's checks of one rollout, one at a time.

They compare states with deepdiff, which parses paths with `ast`. In Python 3.11 and 3.12 two threads that parse at once
break each other: `SystemError: AST constructor recursion depth mismatch`. A right rollout in some hundreds earned 0.
"""

from __future__ import annotations

import threading
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from ludus_lab.agentdojo.suites import state, suite

#: A text longer than this is no list of arguments. Python's parser would take seconds to say so.
LONGEST_LIST = 20_000

#: Held while `ast` is used.
_PARSING = threading.Lock()


@dataclass
class Played:
    """What the checks judge: the tasks, the state at the end, the calls as the model wrote them, and the last text."""

    suite: str
    version: str
    injections: dict[str, str]
    user_task: str
    injection_task: str | None
    state: Any
    calls: list[tuple[str, str]]
    text: str


@dataclass
class Checked:
    """Whether the user's task was done, and the injected one (None without one); what checks raised."""

    utility: bool
    injected: bool | None
    problem: str


def check(played: Played) -> Checked:
    """Ask the checks of the user's task and of the injected task. One that raises counts against the model."""
    from agentdojo.functions_runtime import FunctionCall

    chosen = suite(played.suite, played.version)
    user_task = chosen.user_tasks[played.user_task]
    before = user_task.init_environment(state(played.suite, played.version, played.injections))
    calls = [FunctionCall.model_construct(function=name, args=values_of(arguments)) for name, arguments in played.calls]
    problems: list[str] = []

    def passes(by_state: Callable[..., Any], by_calls: Callable[..., Any], otherwise: bool) -> bool:
        try:
            passed = by_calls(played.text, before, played.state, calls)
            return bool(by_state(played.text, before, played.state) if passed is None else passed)
        except (MemoryError, SystemError):
            raise  # the machine's problem, and not the model's
        except Exception as error:  # no check of agentdojo expects every state that tools can reach
            problems.append(f"{type(error).__name__}: {error}")
            return otherwise

    injected = None
    with _PARSING:
        utility = passes(user_task.utility, user_task.utility_from_traces, otherwise=False)
        if played.injection_task is not None:
            wanted = chosen.injection_tasks[played.injection_task]
            injected = passes(wanted.security, wanted.security_from_traces, otherwise=True)
    return Checked(utility, injected, "; ".join(problems)[:500])


def values_of(arguments: str) -> dict[str, Any]:
    """The arguments of a call. Raises a `ValueError` where they are no JSON object."""
    try:
        values = orjson.loads(arguments or "{}")
    except UnicodeEncodeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(values, dict):
        raise ValueError("they must be an object")
    return {key: _listed(value) for key, value in values.items()}


def _listed(value: Any) -> Any:
    """The list that a text holds in Python's notation, as agentdojo reads it; other values as they are."""
    if not isinstance(value, str) or len(value) > LONGEST_LIST or not value.strip().startswith("["):
        return value
    try:
        with _PARSING:
            parsed = literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return parsed if isinstance(parsed, list) else value
