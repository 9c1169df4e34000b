"""What an author forgot about tools: a method that lacks `@tool`, which no model can call, and a parameter that lacks a
type, for which a model may send anything.

They are warnings: an unused public method is no error.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Collection
from types import FunctionType

from ludus.environment import Environment
from ludus.game import Game
from ludus.resources import Resources
from ludus.runtime.imports import place_of
from ludus.runtime.signatures import own_methods, used_names


def forgotten_tools(environment: Environment, offered: Collection[str] = ()) -> list[str]:
    """One sentence for each method that looks like a tool, is not marked, and nothing calls, and for each tool with a
    parameter that has no type.

    `offered` are the names of tools in rows: a method with such a name gets a sentence even if something calls it.
    """
    resources = environment.resources
    if resources.call is not Resources.call:  # it finds its tools itself
        return []
    base = Game if issubclass(resources, Game) else Resources
    used, sentences = used_names(resources, base) | _library_names(resources), _untyped_parameters(resources)
    for name, method in own_methods(resources, base).items():
        if name.startswith("_") or not _looks_like_a_tool(inspect.getattr_static(resources, name)):
            continue
        wanted = name in offered and name not in resources.toolbox
        if wanted or not (name in used or _is_named_by(name, type(environment.agent).__module__)):
            remedy = f"Write @tool above it, or call it _{name}"
            sentences.append(
                f"{place_of(method, resources)}: {method.__qualname__.rpartition('<locals>.')[2]} has no @tool: "
                f"no model can call it. {remedy}"
            )
    return sentences


def _library_names(resources: type[Resources]) -> set[str]:
    """The methods of base classes such as `SandboxResources`. Other parts of Ludus call them."""
    bases = (base for base in resources.__mro__ if base.__module__.startswith("ludus.sandbox."))
    return {name for base in bases for name in vars(base)}


def _untyped_parameters(resources: type[Resources]) -> list[str]:
    sentences = []
    for tool in resources.toolbox.values():
        _, *parameters = inspect.signature(tool.function).parameters.values()
        if untyped := [parameter.name for parameter in parameters if parameter.annotation is parameter.empty]:
            names = " and ".join(untyped)
            sentences.append(
                f"{place_of(tool.function, resources)}: {names} of the tool {tool.name} has no type: a model may send "
                f"anything. Write {untyped[0]}: str, or another type"
            )
    return sentences


def _looks_like_a_tool(member: object) -> bool:
    """Whether a member of a class is a method without a mark of ours, with a docstring or with types."""
    if not isinstance(member, FunctionType) or any(key.startswith("__ludus_") for key in vars(member)):
        return False
    typed = any(name != "return" for name in getattr(member, "__annotations__", {}))
    return bool(member.__doc__) or typed


@functools.cache
def _is_named_by(name: str, module: str) -> bool:
    """Whether the code of an agent's module names a method, as the agent `conversation` names `user`."""
    try:
        return re.search(rf"\b{re.escape(name)}\b", inspect.getsource(sys.modules[module])) is not None
    except (KeyError, OSError, TypeError):  # typed into a prompt
        return False
