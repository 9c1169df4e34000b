"""The settings of runs beside each other: only those that differ.

The settings of a run are the identity and the options in its run.json, and every `settings.json` in a folder above it,
which a program that trains writes for its runs. The nearest one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ludus.runtime.encoding import encode
from ludus.store.files import read_json_object
from ludus.view.places import ViewedRun

#: How many folders above a run may have a settings.json.
ABOVE = 2

#: The most columns of the table, and the most characters of a value.
MAX_SETTINGS = 24
MAX_VALUE = 200

#: Files of verifiers are told by the verifier's identity, and these options say nothing about the result.
_SKIPPED = ("verifier", "pass_reward", "reward_range", "output")


class Settings(NamedTuple):
    """The names of the settings that differ, and the values of each run in that order; None where a run has none."""

    names: list[str]
    values: list[list[str | None]]
    left_out: int


def differing_settings(runs: list[ViewedRun]) -> Settings:
    """The settings that differ between runs."""
    every = [dict(_settings(run)) for run in runs]
    names = dict.fromkeys(name for settings in every for name in settings)
    differing = [
        name for name in names if len({settings.get(name) for settings in every}) > 1 and not _is_of_some(name, runs)
    ]
    shown = differing[:MAX_SETTINGS]
    values = [[settings.get(name) for name in shown] for settings in every]
    return Settings(shown, values, len(differing) - len(shown))


def _is_of_some(name: str, runs: list[ViewedRun]) -> bool:
    """Whether a setting belongs to an environment that some of the runs do not have."""
    if not name.startswith("environments."):
        return False
    shared = set.intersection(*(set(run.environments) for run in runs))
    return not name.removeprefix("environments.").startswith(tuple(f"{environment}." for environment in shared))


def _settings(run: ViewedRun) -> Iterator[tuple[str, str]]:
    """The settings of a run as text, the farthest first: a later one of the same name counts."""
    folder = run.files.rollouts.parent
    for above in (*reversed(folder.parents[:ABOVE]), folder):
        yield from _flat("", read_json_object(above / "settings.json"))
    described = run.described()
    yield "environments", ", ".join(run.environments)
    yield from _flat("", described.get("identity"))
    yield from _flat("", described.get("options"))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in list(value.items())[:200]:
            if name not in _SKIPPED:
                yield from _flat(f"{prefix}{name}.", inner)
    elif prefix:
        text = value if isinstance(value, str) else encode(value).decode()
        yield prefix.removesuffix("."), text[:MAX_VALUE]
