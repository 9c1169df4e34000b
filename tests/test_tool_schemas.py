"""What a tool's signature becomes for the model, and what providers may take at its word."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from ludus import Resources, tool


class Node(BaseModel):
    """May have children."""

    value: int
    children: list[Node] = []


class Point(BaseModel):
    """Is closed."""

    model_config = ConfigDict(extra="forbid")

    x: int
    y: int


class Tools(Resources):
    @tool
    async def nothing(self) -> str:
        """Take nothing."""
        return ""

    @tool
    async def plain(self, city: str, unit: Literal["c", "f"], at: int | None) -> str:
        """Take what is typed."""
        return ""

    @tool
    async def closed(self, points: list[Point]) -> str:
        """Take closed objects."""
        return ""

    @tool
    async def optional(self, city: str = "Oslo") -> str:
        """Take a default."""
        return ""

    @tool
    async def nested(self, node: Node) -> str:
        """Take an object that is not closed."""
        return ""

    @tool
    async def mapping(self, counts: dict[str, int]) -> str:
        """Take any names."""
        return ""

    @tool
    async def untyped(self, anything: Any) -> str:
        """Take anything."""
        return ""


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        ("nothing", True),
        ("plain", True),
        ("closed", True),
        ("optional", False),
        ("nested", False),
        ("mapping", False),
        ("untyped", False),
    ],
)
def test_a_tool_is_strict_only_where_its_whole_schema_is(name: str, strict: bool) -> None:
    assert Tools.toolbox[name].schema()["strict"] is strict
