"""Ludus: build environments for language models, collect verified rollouts from them, feed any trainer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ludus.runtime.moved import find_moved_modules

if TYPE_CHECKING:
    from ludus.agent import Agent as Agent
    from ludus.agent import AgentConfig as AgentConfig
    from ludus.api import collect as collect
    from ludus.api import collect_async as collect_async
    from ludus.api import stream as stream
    from ludus.collection.collection import Collection as Collection
    from ludus.collection.merging import merge as merge
    from ludus.collection.results import Run as Run
    from ludus.collection.results import load as load
    from ludus.environment import Environment as Environment
    from ludus.episode import Episode as Episode
    from ludus.errors import Failure as Failure
    from ludus.errors import UserError as UserError
    from ludus.game import Game as Game
    from ludus.game import Step as Step
    from ludus.limits import Limits as Limits
    from ludus.model import Model as Model
    from ludus.model import ModelConfig as ModelConfig
    from ludus.model import Request as Request
    from ludus.models.scripted import ScriptedModel as ScriptedModel
    from ludus.outcome import Outcome as Outcome
    from ludus.outcome import Verdict as Verdict
    from ludus.resources import Resources as Resources
    from ludus.resources import ResourcesConfig as ResourcesConfig
    from ludus.resources import tool as tool
    from ludus.response import Response as Response
    from ludus.rollout import Rollout as Rollout
    from ludus.task import Task as Task

__version__ = "0.1.0"

_NAMES = {
    "agent": ("Agent", "AgentConfig"),
    "api": ("collect", "collect_async", "stream"),
    "collection.collection": ("Collection",),
    "collection.merging": ("merge",),
    "collection.results": ("Run", "load"),
    "environment": ("Environment",),
    "episode": ("Episode",),
    "errors": ("Failure", "UserError"),
    "game": ("Game", "Step"),
    "limits": ("Limits",),
    "model": ("Model", "ModelConfig", "Request"),
    "models.scripted": ("ScriptedModel",),
    "outcome": ("Outcome", "Verdict"),
    "resources": ("Resources", "ResourcesConfig", "tool"),
    "response": ("Response",),
    "rollout": ("Rollout",),
    "task": ("Task",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # checkers read the imports above
    __all__ = sorted(_MODULE_OF)

find_moved_modules()


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `ludus --help` does not wait for pydantic."""
    if name in _MODULE_OF:
        value = globals()[name] = getattr(import_module(f"ludus.{_MODULE_OF[name]}"), name)
        return value
    raise AttributeError(f"module 'ludus' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, also before their first use."""
    return sorted({*globals(), *_MODULE_OF})
