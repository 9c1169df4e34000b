"""The resources of a server that is not Ludus's code: only its address is known here."""

from __future__ import annotations

from ludus.resources import Resources


class Foreign(Resources):
    """Accepts any row. The tools and the verifier are on the server."""
