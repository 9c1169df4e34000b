"""Dataset patterns find the matches that `re` finds, and a search that would never end is stopped."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.graders.patterns import PatternError, Patterns


async def test_last_match_gives_the_spans_of_the_match_and_its_groups() -> None:
    async with Patterns() as patterns:
        assert await patterns.last_match(r"x(\d)", "x1 x2") == [(3, 5), (4, 5)]
        assert await patterns.last_match(r"X(\d)", "x1", re.IGNORECASE) == [(0, 2), (1, 2)]
        assert await patterns.last_match(r"(a)|(b)", "b") == [(0, 1), (-1, -1), (0, 1)]
        assert await patterns.last_match(r"z", "x1") is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_can_be_searched(texts: list[str]) -> None:
    async def search() -> None:
        async with Patterns() as patterns:
            for text in [*texts, "\ud800"]:
                assert await patterns.last_match(".", text, re.DOTALL) == (
                    [(len(text) - 1, len(text))] if text else None
                )

    asyncio.run(search())


async def test_an_invalid_pattern_raises_a_pattern_error() -> None:
    async with Patterns() as patterns:
        with pytest.raises(PatternError, match="unterminated"):
            await patterns.last_match("(", "text")


async def test_an_endless_search_is_stopped_without_a_match_and_does_not_block_the_event_loop() -> None:
    async with Patterns(children=1, seconds=0.2) as patterns:
        search = asyncio.create_task(patterns.last_match("(a+)+$", "a" * 60 + "b"))
        turns = 0
        while not search.done():
            await asyncio.sleep(0)
            turns += 1
        assert await search is None
        assert turns > 10, "on the loop it would be one"
        assert await patterns.last_match("b", "ab") == [(1, 2)]


async def test_a_search_after_a_cancelled_one_succeeds() -> None:
    async with Patterns(children=1) as patterns:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(patterns.last_match("(a+)+$", "a" * 60 + "b"), 0.1)
        assert await patterns.last_match("b", "ab") == [(1, 2)]


async def test_more_searches_than_children_are_queued() -> None:
    async with Patterns(children=2) as patterns:
        found = await asyncio.gather(*(patterns.last_match(str(n), f"<{n}>") for n in range(50)))
    assert all(spans is not None and spans[0][0] == 1 for spans in found)
