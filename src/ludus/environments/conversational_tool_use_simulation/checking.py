"""Check JSON that a model wrote against a schema of the row, without blocking the event loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from ludus.graders.schemas import Validator, is_tree
from ludus.runtime.processes import in_process
from ludus.runtime.threads import in_thread

#: If text and schema are at most this long, a check that visits everything once takes milliseconds.
SHORT = 20_000

#: CPU seconds for any other check. Only a pathological pattern or reference takes this long.
SECONDS = 5.0


async def problem_with(text: str, schema: dict[str, Any] | None) -> str | None:
    """Why a text is not JSON that fits the schema; None if it fits."""
    written = orjson.dumps(schema).decode() if schema is not None else "true"
    if len(text) > SHORT or len(written) > SHORT or not _is_tree(written):
        return await in_process(check, text, written, cpu_seconds=SECONDS)
    problem: str | None = await in_thread(check, text, written)
    return problem


def check(text: str, schema: str) -> str | None:
    """The check itself; runs in a thread or a child process."""
    try:
        value = orjson.loads(unfenced(text))
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    return _validator(schema).problem(value)


def unfenced(text: str) -> str:
    """The text without a surrounding code fence, which many models add."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3].strip()
    return text


@lru_cache(maxsize=512)
def _is_tree(schema: str) -> bool:
    return is_tree(orjson.loads(schema))


@lru_cache(maxsize=512)
def _validator(schema: str) -> Validator:
    return Validator(orjson.loads(schema))
