"""Files in `config_paths` that are not configurations, such as a manifest or a prompt template.

Merged into a configuration, such a file changes nothing: without this check a mistake would go unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ludus.errors import UserError
from ludus_nemo_gym.directives import COPY, INHERIT
from ludus_nemo_gym.names import ENVIRONMENTS, GLOBAL_KEYS, GLOBAL_PREFIXES, KINDS
from ludus_nemo_gym.trees import Tree, steps_of

#: What makes a top-level mapping a server.
_SERVER_KEYS = {*KINDS, ENVIRONMENTS, COPY, INHERIT}
_REFERENCE = re.compile(r"\$\{\s*([\w-]+)")


def refuse_other_files(files: Mapping[str, Tree], top: Tree) -> None:
    """Raise if a file has plain values at its top level, and none of its keys is used.

    A key is used if it is a server or a known setting, or if a value in a file or in `top` refers to it; `top` is
    merged over the files. A file of mappings alone is accepted: it may describe a part that Ludus does not have, such
    as a sandbox.
    """
    referred = set(_references([*files.values(), top]))
    for name, content in files.items():
        plain_values = [key for key, value in content.items() if not isinstance(value, dict)]
        if plain_values and not any(_is_of_use(key, value, referred) for key, value in content.items()):
            keys = ", ".join(key[:40] for key in plain_values[:3])
            raise UserError(
                f"{name} is not a configuration: it has no server, and nothing uses its keys ({keys}, ...)",
                "Take it out of config_paths; configurations are named like resources_servers/mcqa/configs/mcqa.yaml",
            )


def _is_of_use(key: str, value: Any, referred: set[str]) -> bool:
    known = key in GLOBAL_KEYS or key.startswith(GLOBAL_PREFIXES) or key in referred
    return known or (isinstance(value, dict) and not _SERVER_KEYS.isdisjoint(value))


def _references(node: Any) -> Iterator[str]:
    """The top-level key of each `${key...}` and of each directive's path."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in (COPY, INHERIT) and isinstance(value, str):
                yield from steps_of(value)[:1]
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, str):
        yield from _REFERENCE.findall(node)
