"""The verdict on a conversation by the rules of tau2: the database, assertions, actions, and what was said."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

from ludus_lab.tau2.domains import database_changes, fresh


class MadeCall(NamedTuple):
    """A call of the assistant or of the user."""

    name: str
    arguments: dict[str, Any]


class Findings(NamedTuple):
    """What each check found; `problem` is the error of a check that could not run."""

    parts: dict[str, float]
    problem: str = ""

    def reward(self, basis: Iterable[str]) -> float:
        """1 if every part that the task counts is fulfilled."""
        return float(all(self.parts[name.lower()] == 1.0 for name in basis))


def examine(
    domain: str,
    initial_state: dict[str, Any] | None,
    criteria: dict[str, Any],
    environment: Any,
    calls: list[MadeCall],
    texts: list[str],
) -> Findings:
    """Compare a conversation with a task's criteria. `texts` are the messages of the assistant."""
    problems: list[str] = []
    parts = {
        "db": _database(domain, initial_state, criteria, environment, problems),
        "env_assertion": _assertions(criteria, environment, problems),
        "action": float(all(_made(action, calls) for action in criteria.get("actions") or [])),
        "communicate": float(all(_said(text, texts) for text in criteria.get("communicate_info") or [])),
    }
    return Findings(parts, "; ".join(problems)[:500])


def _database(
    domain: str, initial_state: dict[str, Any] | None, criteria: dict[str, Any], environment: Any, problems: list[str]
) -> float:
    """1 if both databases are as the task's own actions leave them."""
    if criteria.get("actions") is None and criteria.get("env_assertions") is None:
        return 1.0
    expected = fresh(domain, initial_state)
    for action in criteria.get("actions") or []:
        try:
            expected.make_tool_call(action["name"], action.get("requestor") or "assistant", **action["arguments"])
        except Exception:  # an action that is refused changes nothing, and tau2 goes on
            continue
    try:
        return float(database_changes(environment) == database_changes(expected))
    except Exception as error:  # a model wrote something into a database that cannot be compared
        problems.append(f"db: {type(error).__name__}: {error}")
        return 0.0


def _assertions(criteria: dict[str, Any], environment: Any, problems: list[str]) -> float:
    """1 if all assertions hold. They run on a copy, because some of them change what they look at."""
    from tau2.data_model.tasks import EnvAssertion

    if not (assertions := criteria.get("env_assertions")):
        return 1.0
    twin = copy.deepcopy(environment)
    try:
        checks = [EnvAssertion.model_validate(assertion) for assertion in assertions]
        return float(all([twin.run_env_assertion(check, raise_assertion_error=False) for check in checks]))
    except Exception as error:
        problems.append(f"env_assertion: {type(error).__name__}: {error}")
        return 0.0


def _made(action: dict[str, Any], calls: list[MadeCall]) -> bool:
    """Whether a call has the action's name and arguments: those in `compare_args`, else all of the call's."""
    for call in calls:
        if call.name != action["name"]:
            continue
        compared = action.get("compare_args")
        names = call.arguments.keys() if compared is None else compared
        wanted = {name: value for name, value in action["arguments"].items() if name in names}
        if wanted == {name: value for name, value in call.arguments.items() if name in names}:
            return True
    return False


def _said(text: str, texts: list[str]) -> bool:
    return any(text.lower() in said.lower().replace(",", "") for said in texts)
