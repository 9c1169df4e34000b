"""A request with instructions about the answer's form, such as its length, its words or its language.

Programs check each instruction; nothing else about the answer is graded. The answer is the model's last message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic import BaseModel, model_validator

import ludus
from ludus import Resources, ResourcesConfig, Response, Verdict
from ludus.environments.instruction_following.instructions import InstructionError, follows
from ludus.environments.instruction_following.instructions.language import require_langdetect
from ludus.environments.instruction_following.instructions.matching import may_run_away
from ludus.response import Item, is_message
from ludus.runtime.processes import ProcessPool, shared_pool
from ludus.runtime.threads import in_thread

Arguments = dict[str, Any] | None

#: CPU time limit for the regular expressions of one row, which only `compat` uses.
SECONDS = 1.0


class Metadata(BaseModel):
    """The instructions, and the arguments of each at the same place in `kwargs`."""

    instruction_id_list: list[str]
    prompt: str
    kwargs: list[Arguments]
    grading_mode: Literal["binary", "fraction"] = "binary"


class InstructionFollowing(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        id: int
        verifier_metadata: Metadata

        @model_validator(mode="before")
        @classmethod
        def _nest_metadata(cls, row: Any) -> Any:
            """Rows may hold the metadata at their top level; values in `verifier_metadata` win."""
            nested = row.get("verifier_metadata", {}) if isinstance(row, dict) else None
            if not isinstance(nested, dict):
                return row
            flat = {key: row[key] for key in Metadata.model_fields if key in row}
            return {**row, "verifier_metadata": flat | nested}

    config: ResourcesConfig
    shared: ProcessPool

    @classmethod
    @asynccontextmanager
    async def share(cls, config: ResourcesConfig) -> AsyncIterator[ProcessPool]:
        require_langdetect()
        async with shared_pool() as pool:
            yield pool

    async def verify(self, task: Task, response: Response) -> Verdict:
        asked, compat = task.verifier_metadata, self.config.compat
        text = last_item_text(response) if compat else last_message_text(response)
        instructions = list(zip(asked.instruction_id_list, asked.kwargs, strict=False))
        if compat and any(may_run_away(arguments or {}) for _, arguments in instructions):
            followed, problem = await self.shared.run(check, text, instructions, compat, cpu_seconds=SECONDS)
        else:
            followed, problem = await in_thread(check, text, instructions, compat)
        answered = bool(text.strip()) or compat
        return Verdict(
            reward(followed, asked.grading_mode, answered=answered, compat=compat),
            follow_all_instructions=all(followed) and answered,
            follow_instruction_list=followed,
            mask=None if compat else problem or _mismatch(asked),
        )


def check(text: str, instructions: list[tuple[str, Arguments]], compat: bool) -> tuple[list[bool], str | None]:
    """Which instructions a text follows, and the problem with the first instruction that cannot be checked."""
    followed, problem = [], None
    for name, arguments in instructions:
        try:
            followed.append(follows(text, name, arguments, compat=compat))
        except InstructionError as error:
            followed.append(False)
            problem = problem or f"instruction {len(followed)}, {name}: {error}"
    return followed, problem


def reward(followed: list[bool], mode: str, *, answered: bool, compat: bool) -> float:
    """All or nothing, or the share of followed instructions. An empty answer or an empty list never earns 1.0."""
    if mode == "binary":
        return float(all(followed) and answered and (bool(followed) or compat))
    share = sum(followed) / len(followed) if followed else 0.0
    return share if answered or share < 1.0 else 0.0


def last_message_text(response: Response) -> str:
    """The first text of the last message, even if reasoning or calls follow it."""
    return next((_first_text(item) for item in reversed(response.output) if is_message(item)), "")


def last_item_text(response: Response) -> str:
    """The first text of the last item of any kind, as in the reference."""
    return _first_text(response.output[-1]) if response.output else ""


def _first_text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""


def _mismatch(asked: Metadata) -> str | None:
    names, arguments = len(asked.instruction_id_list), len(asked.kwargs)
    if names and names == arguments:
        return None
    return f"the row has {names} instructions and {arguments} sets of arguments"
