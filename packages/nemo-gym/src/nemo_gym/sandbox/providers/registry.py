"""Providers by their names: the built-in ones, those of installed packages, and those that code registers."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from nemo_gym.sandbox.config import provider_of

#: The entry point group in which other packages name their providers.
ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"

_BUILT_IN = {
    "apptainer": "apptainer:ApptainerProvider",
    "daytona": "hosted:DaytonaSandboxProvider",
    "docker": "docker:DockerProvider",
    "e2b": "hosted:E2bSandboxProvider",
    "ecs_fargate": "missing:EcsFargateProvider",
    "enroot": "missing:EnrootProvider",
    "local": "local:LocalProvider",
    "ludus": "ludus:LudusProvider",
    "opensandbox": "missing:OpenSandboxProvider",
    "openshell": "missing:OpenShellProvider",
}

log = logging.getLogger("nemo_gym.sandbox")

#: The providers that code has registered in this process.
_registered: dict[str, Any] = {}


def register_provider(name: str, cls: Any, *, override: bool = False) -> None:
    """Make a class known as a provider. A name that is taken by another class is a `ValueError` without `override`."""
    if not name or not isinstance(name, str):
        raise ValueError(f"a sandbox provider needs a name, not {name!r}")
    taken = name in list_providers() and _registered.get(name) is not cls
    if taken and not override:
        raise ValueError(f"sandbox provider {name} exists already: choose another name, or pass override=True")
    _registered[name] = cls


def list_providers() -> list[str]:
    """The names of all providers, sorted. Not all of them work on every machine."""
    return sorted({*_BUILT_IN, *_registered, *entry_points(group=ENTRY_POINT_GROUP).names})


def get_provider_class(name: str) -> Any:
    """The class of a provider. An unknown name is a `ValueError`."""
    if name in _registered:
        return _registered[name]
    others = entry_points(group=ENTRY_POINT_GROUP)
    if name in others.names:
        return others[name].load()
    if name not in _BUILT_IN:
        raise ValueError(f"unknown sandbox provider {name!r}. Known: {', '.join(list_providers())}")
    module, _, class_name = _BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(f"nemo_gym.sandbox.providers.{module}"), class_name)


def create_provider(provider_config: Mapping[str, Any]) -> Any:
    """The provider of `{NAME: settings}`.

    A provider that this machine cannot run is made too, so that a server can be built and tested without it. What is
    missing is logged now, and raised as a `SandboxCreateError` when a sandbox is wanted.
    """
    name, settings = provider_of(provider_config)
    provider = get_provider_class(name)(**settings)
    problem = getattr(provider, "problem", None)
    if callable(problem) and isinstance(why := problem(), str):
        log.warning("%s", why)
    return provider
