"""Fixtures that these tests share with those of Ludus."""

from __future__ import annotations

from shared_fixtures import counter, rows

__all__ = ["counter", "rows"]
