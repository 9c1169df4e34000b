"""What is known of a resources server that somebody else wrote: nothing but its address."""

from __future__ import annotations

from ludus.resources import Resources


class Foreign(Resources):
    """Takes any row; tools and verifier are on the server."""
