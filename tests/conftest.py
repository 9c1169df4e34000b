"""Fixtures that all tests share."""

from __future__ import annotations

import os

from shared_fixtures import counter, rows, server

__all__ = ["counter", "rows", "server"]

os.environ.pop("COLUMNS", None)  # tests must not depend on the terminal's width
