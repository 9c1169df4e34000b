"""The JSON schema that a tool's signature becomes, and which tools are marked as strict."""

from __future__ import annotations

import functools
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from ludus import Resources, tool


class Node(BaseModel):
    """An object with children that allows extra fields."""

    value: int
    children: list[Node] = []


class Point(BaseModel):
    """An object that forbids extra fields."""

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
        """Take typed arguments."""
        return ""

    @tool
    async def closed(self, points: list[Point]) -> str:
        """Take objects that forbid extra fields."""
        return ""

    @tool
    async def optional(self, city: str = "Oslo") -> str:
        """Take a default."""
        return ""

    @tool
    async def nested(self, node: Node) -> str:
        """Take an object that allows extra fields."""
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
def test_a_tool_is_strict_only_if_its_whole_schema_is(name: str, strict: bool) -> None:
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
async def test_a_tool_may_be_wrapped_in_any_callable(wrap: Any) -> None:
    class Wraps(Resources):
        @tool
        @wrap
        def look(self, city: str) -> str:
            """Look."""
            return f"seen {city}"

    assert await Wraps().call("look", '{"city": "Oslo"}') == "seen Oslo"


async def test_a_subclass_may_override_a_tool_with_a_method_of_another_name() -> None:
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
