"""What the package agentdojo holds: its suites, their tasks, and the state that a rollout starts from.

The package is imported when it is first needed. Its import takes seconds: it brings the clients of four providers.
"""

from __future__ import annotations

import pickle
from functools import cache, lru_cache
from typing import Any

import orjson
import yaml

from ludus.errors import UserError, did_you_mean
from ludus_lab.needs import require

#: The suites of the package.
SUITES = ("workspace", "travel", "banking", "slack")

#: The version of the tasks that rows name, unless `data.version` is set.
VERSION = "v1.2.2"

#: libyaml reads the state of a suite in a tenth of the time.
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def suite(name: str, version: str = VERSION) -> Any:
    """A suite of the package. Raises a `UserError` for an unknown suite or version."""
    require(__package__)
    from agentdojo.task_suite.load_suites import _SUITES, get_suites

    if version not in _SUITES:  # looking it up would make an empty one
        raise UserError(f"agentdojo has no version {version!r:.40}", did_you_mean(version, _SUITES))
    suites = get_suites(version)
    if name not in suites:
        raise UserError(f"agentdojo has no suite {name!r:.40}", did_you_mean(name, suites))
    return suites[name]


@cache
def tools_of(name: str, version: str = VERSION) -> bytes:
    """The tools of a suite as JSON, with agentdojo's own schemas. To make the schemas takes milliseconds."""
    return orjson.dumps(
        [
            {
                "type": "function",
                "name": function.name,
                "description": function.description,
                "parameters": function.parameters.model_json_schema(),
                "strict": False,
            }
            for function in suite(name, version).tools
        ]
    )


def state(name: str, version: str, injections: dict[str, str]) -> Any:
    """A fresh state of a suite, with these texts in place of the defaults of its injection vectors.

    Raises a `ValueError` for an unknown vector, and for a text that breaks the suite's YAML.
    """
    return pickle.loads(_packed(name, version, tuple(sorted(injections.items()))))  # packed below


@lru_cache(maxsize=256)
def _packed(name: str, version: str, injections: tuple[tuple[str, str], ...]) -> bytes:
    """The state as bytes: to unpack them takes a millisecond, to read the YAML takes a hundred."""
    from agentdojo.task_suite.task_suite import read_suite_file

    chosen, texts = suite(name, version), dict(injections)
    defaults = vector_defaults(name, version)
    if unknown := sorted(texts.keys() - defaults.keys()):
        raise ValueError(f"the suite {name} has no injection vector {unknown[0]!r:.60}")
    text = read_suite_file(name, "environment.yaml", chosen.data_path).format(**(defaults | texts))
    try:
        return pickle.dumps(chosen.environment_type.model_validate(yaml.load(text, _YAML)))  # a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"an injection breaks the YAML of the suite {name}: {error}") from error


@cache
def vector_defaults(name: str, version: str = VERSION) -> dict[str, str]:
    """The injection vectors of a suite, where an attack may write, with the texts that stand there without one."""
    defaults: dict[str, str] = suite(name, version).get_injection_vector_defaults()
    return defaults
