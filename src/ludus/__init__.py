"""Ludus: build environments for language models, collect verified rollouts from them, feed any trainer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ludus.runtime.moved import find_moved_modules

if TYPE_CHECKING:
    from ludus.agent import Agent, AgentConfig
    from ludus.api import collect, collect_async, stream
    from ludus.collection.collection import Collection
    from ludus.collection.merging import merge
    from ludus.collection.results import Run, load
    from ludus.environment import Environment
    from ludus.episode import Episode, Limits
    from ludus.errors import Failure, UserError
    from ludus.game import Game, Step
    from ludus.model import Model, ModelConfig, Request
    from ludus.models.scripted import ScriptedModel
    from ludus.outcome import Outcome, Verdict
    from ludus.resources import Resources, ResourcesConfig, tool
    from ludus.response import Response
    from ludus.rollout import Rollout
    from ludus.task import Task

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentConfig",
    "Collection",
    "Environment",
    "Episode",
    "Failure",
    "Game",
    "Limits",
    "Model",
    "ModelConfig",
    "Outcome",
    "Request",
    "Resources",
    "ResourcesConfig",
    "Response",
    "Rollout",
    "Run",
    "ScriptedModel",
    "Step",
    "Task",
    "UserError",
    "Verdict",
    "collect",
    "collect_async",
    "load",
    "merge",
    "stream",
    "tool",
]

_NAMES = {
    "agent": ("Agent", "AgentConfig"),
    "api": ("collect", "collect_async", "stream"),
    "collection.collection": ("Collection",),
    "collection.merging": ("merge",),
    "collection.results": ("Run", "load"),
    "environment": ("Environment",),
    "episode": ("Episode", "Limits"),
    "errors": ("Failure", "UserError"),
    "game": ("Game", "Step"),
    "model": ("Model", "ModelConfig", "Request"),
    "models.scripted": ("ScriptedModel",),
    "outcome": ("Outcome", "Verdict"),
    "resources": ("Resources", "ResourcesConfig", "tool"),
    "response": ("Response",),
    "rollout": ("Rollout",),
    "task": ("Task",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

find_moved_modules()


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `ludus --help` does not wait for pydantic."""
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(f"ludus.{_MODULE_OF[name]}"), name)
        return value
    raise AttributeError(f"module 'ludus' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, also before their first use."""
    return sorted({*globals(), *__all__})
