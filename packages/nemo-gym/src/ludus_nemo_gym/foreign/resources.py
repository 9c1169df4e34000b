"""The resources of a server that is not Ludus's code: only its address is known here."""

from __future__ import annotations

from typing import Any

from ludus.errors import Failure
from ludus.resources import Resources
from ludus.response import Response


class Foreign(Resources):
    """Accepts any row. The tools and the verifier are on the server."""

    async def verify(self, task: Any, response: Response) -> float:
        """Never called in a launch, because the stand-in for the server takes the place of this class."""
        raise Failure("no_server", "the verifier of this environment is on a server: name it with --resources URL")
