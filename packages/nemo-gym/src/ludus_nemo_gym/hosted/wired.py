"""A server of a merged configuration as an environment: its code is named here, its settings come with the plan.

    nemo_gym:FOLDER#turns#INSTANCE

`turns` is a game, which has `/reset` and `/step`; `tools` is any other server.
"""

from __future__ import annotations

import re
from pathlib import Path

from ludus.agents.simple import SimpleAgent
from ludus.environment import Environment
from ludus.errors import UserError
from ludus_nemo_gym.hosted.resources import HostedConfig, HostedGame, HostedResources
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource

_TEXT = re.compile(r"(?P<folder>.+)#(?P<kind>tools|turns)#(?P<instance>[^#]+)")


def environment_text(folder: Path | str, instance: str, *, turns: bool) -> str:
    """The text that names an instance of a server to `Environment.load`."""
    return f"nemo_gym:{folder}#{'turns' if turns else 'tools'}#{instance}"


def wired_environment(text: str) -> Environment | None:
    """The environment of such a text, without `nemo_gym:`; None for any other text."""
    named = _TEXT.fullmatch(text)
    if named is None:
        return None
    source = ServerSource.find(named["folder"])
    if source is None:
        raise UserError(f"{named['folder']} has no {ENTRY}", "Start the servers again")
    return Environment(
        name=named["instance"],
        resources=HostedGame if named["kind"] == "turns" else HostedResources,
        agent=SimpleAgent(),
        config=HostedConfig(source=source, instance=named["instance"]),
        folder=source.folder,
        code=source.code_of_others(),
    )
