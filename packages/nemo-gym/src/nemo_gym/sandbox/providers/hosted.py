"""Sandboxes on the machines of Daytona and e2b, through the package ludus-sandboxes."""

from __future__ import annotations

from typing import Any

from nemo_gym.sandbox.providers._instead import warn_unknown
from nemo_gym.sandbox.providers.ludus import LudusProvider


class _HostedProvider(LudusProvider):
    """Reads its key from the environment, as Ludus does. Settings other than Ludus's have no effect.

    Commands of one sandbox run one after the other.
    """

    concurrent = False

    def __init__(self, **settings: Any) -> None:
        known = {key: settings.pop(key) for key in ("images", "memory_mib", "disk_mib", "processes") if key in settings}
        super().__init__(provider=self.name, **known)
        warn_unknown(self.name, settings)


class DaytonaSandboxProvider(_HostedProvider):
    """Sandboxes of Daytona. Needs the package ludus-sandboxes and DAYTONA_API_KEY."""

    name = "daytona"


class E2bSandboxProvider(_HostedProvider):
    """Sandboxes of e2b. Needs the package ludus-sandboxes and E2B_API_KEY."""

    name = "e2b"
