"""What a tool's signature becomes for the model, and what providers may take at its word."""

from __future__ import annotations

import functools
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


class Wrapped:
    """A decorator that is a class."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __get__(self, owner: Any, kind: Any) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


@pytest.mark.parametrize("wrap", [functools.lru_cache(maxsize=None), Wrapped], ids=["lru_cache", "class"])
async def test_a_tool_may_be_wrapped_in_anything_that_can_be_called(wrap: Any) -> None:
    class Wraps(Resources):
        @tool
        @wrap
        def look(self, city: str) -> str:
            """Look."""
            return f"seen {city}"

    assert await Wraps().call("look", '{"city": "Oslo"}') == "seen Oslo"


async def test_a_subclass_may_give_a_tool_another_method() -> None:
    class Base(Resources):
        @tool
        async def look(self) -> str:
            """Look."""
            return "base"

    class Better(Base):
        @tool(name="look")
        async def better(self) -> str:
            """Look better."""
            return "better"

    assert await Better().call("look", "{}") == "better"
