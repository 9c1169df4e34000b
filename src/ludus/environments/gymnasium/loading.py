"""Load a game by its Gymnasium id, or by the name of a class.

`Blackjack-v1` and `ALE/Pong-v5` are ids; `package:Maze-v0` is an id that `package` registers. `package.module:Maze` and
`maze.py:Maze` name a class with Gymnasium's `reset` and `step`, which need not import Gymnasium.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ludus.environments.gymnasium.spaces import MOST_NUMBERS, Actions, library, numbers_in
from ludus.errors import UserError
from ludus.runtime.imports import load_object

#: The sections of a docstring that a player needs; the others are about training.
SECTIONS = ("Description", "Action Space", "Observation Space", "Rewards")

_SECTION = re.compile(r"^[ \t]*## +(.+)$", re.MULTILINE)
_MARKUP = re.compile(r"<[^<>]*>|\[<[^<>]*>\d*</[^<>]*>\]")


@dataclass(frozen=True)
class LoadedGame:
    """A playable game: a function that makes an instance, its rules, and its actions."""

    make: Callable[[], Any]
    rules: str
    actions: Actions


def load_game(name: str, settings: dict[str, Any]) -> LoadedGame:
    """Load a game and check one instance, to refuse an unplayable game before the run."""
    make = _maker(name, settings)
    try:
        game = make()
    except Exception as error:
        raise UserError(f"{name} cannot be made: {type(error).__name__}: {_one_line(error)}") from error
    try:
        size = numbers_in(getattr(game, "observation_space", None))
        if size > MOST_NUMBERS:
            raise UserError(f"{name} shows {size:,} numbers at a time", f"At most {MOST_NUMBERS} can be shown as text")
        try:
            actions = Actions(getattr(game, "action_space", None))
        except UserError as error:
            raise UserError(f"{name} cannot be played in text: {error}") from error
        return LoadedGame(make, rules_of(getattr(game, "unwrapped", game)), actions)
    finally:
        if hasattr(game, "close"):
            game.close()


def rules_of(game: Any) -> str:
    """The rules for the player, from the docstring of the game's class."""
    text = inspect.cleandoc(type(game).__doc__ or "")
    first, *sections = _SECTION.split(text)
    parts = [first.strip()] if not sections else []
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title.strip() in SECTIONS:
            parts.append(f"{title.strip()}:\n{inspect.cleandoc(body)}")
    return _MARKUP.sub("", "\n\n".join(parts)).strip()


def _maker(name: str, settings: dict[str, Any]) -> Callable[[], Any]:
    module, _, known_as = name.rpartition(":")
    if module and known_as.isidentifier():
        kind = load_object(name, None)
        return lambda: kind(**settings)
    gymnasium = library()
    try:
        if module:
            importlib.import_module(module)
        spec = gymnasium.spec(known_as)
        drawn = "render_mode" not in settings and "ansi" in _render_modes(spec)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"{name} cannot be found: {_one_line(error)}", "Example: gymnasium:Blackjack-v1") from error
    extra = {"render_mode": "ansi", **settings} if drawn else settings
    return lambda: gymnasium.make(spec, disable_env_checker=True, **extra)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _render_modes(spec: Any) -> list[str]:
    """The render modes that the game's class declares."""
    from gymnasium.envs.registration import load_env_creator

    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    metadata = getattr(creator, "metadata", None)
    return list((metadata or {}).get("render_modes") or ())
