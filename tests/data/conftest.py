"""A hub on this machine for each test that asks for it."""

from __future__ import annotations

from hub_server import hub

__all__ = ["hub"]
