"""Ludus: build environments for language models, collect verified rollouts from them, feed any trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.agent import Agent, AgentConfig
from ludus.environment import Environment
from ludus.episode import Episode, Limits
from ludus.errors import UserError
from ludus.model import Model, ModelConfig, Request
from ludus.outcome import Failure, Outcome, Verdict
from ludus.resources import Resources, ResourcesConfig, tool
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.task import Task

if TYPE_CHECKING:
    from ludus.collection.api import Collection, collect, stream
    from ludus.models.scripted import ScriptedModel

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentConfig",
    "Collection",
    "Environment",
    "Episode",
    "Failure",
    "Limits",
    "Model",
    "ModelConfig",
    "Outcome",
    "Request",
    "Resources",
    "ResourcesConfig",
    "Response",
    "Rollout",
    "ScriptedModel",
    "Task",
    "UserError",
    "Verdict",
    "collect",
    "stream",
    "tool",
]

_LATER = {"Collection": "collection.api", "collect": "collection.api", "stream": "collection.api"}
_LATER |= {"ScriptedModel": "models.scripted"}


def __getattr__(name: str) -> Any:
    """Names that live outside the words are imported when first used, so that `import ludus` stays light."""
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"ludus.{_LATER[name]}"), name)
    raise AttributeError(f"module 'ludus' has no attribute {name!r}")
