"""An environment to train on, and rows for it."""

from __future__ import annotations

from counting import counter, rows

__all__ = ["counter", "rows"]
