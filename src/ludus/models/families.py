"""Answers as a family of models spells them: the calls and the thinking of Llama 3, gpt-oss, DeepSeek, GLM, Kimi, ...

The package `renderers` reads them, by ids. It does not make prompts here: the template that comes with the weights
does, which may differ from the package's own.
"""

from __future__ import annotations

import json
from typing import Any

from ludus.errors import UserError, missing_extra
from ludus.models.chatml import WrittenCall, is_name, items_of_parts
from ludus.models.transformers_prompt import thought_item
from ludus.response import Item

#: What the package has besides families: it would guess, or need settings of its own.
_NO_FAMILY = ("auto", "custom", "default")
#: What the package says of calls that somebody can answer.
_CALLS = ("ok", "invalid_json", "unknown_tool")


class FamilyReader:
    """Reads the answers of one family with a tokenizer. Not thread-safe."""

    def __init__(self, family: str, tokenizer: Any) -> None:
        try:
            from renderers import base, configs
        except ImportError as error:
            raise missing_extra(f"What reads the family {family}", "renderers") from error
        base._populate_registry()
        known = sorted(base.RENDERER_REGISTRY.keys() - set(_NO_FAMILY))
        if family not in known:
            raise UserError(f"no family of models is called {family!r}", f"Set family to one of: {', '.join(known)}")
        try:
            self._renderer = base.create_renderer(tokenizer, configs.config_from_name(family))
        except Exception as error:  # of the package's own, which have no class in common
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(
                f"answers of the family {family} cannot be read with this tokenizer: {first}",
                "Set family to that of the model",
            ) from error

    def ends(self) -> set[int]:
        """The ids that end a turn."""
        return set(self._renderer.get_stop_token_ids())

    def items(
        self, ids: list[int], prompt: list[int], tools: list[Item], text: str, stop: str, *, key: str
    ) -> list[Item]:
        """The thinking, the message and the calls of an answer. The message loses the stop string that ended it.

        A call that does not end, or has no name, stays text. One whose arguments are no JSON is a call: its tool will
        say so.
        """
        specs = [{"description": "", "parameters": {}, **tool} for tool in tools]
        try:
            read = self._renderer.parse_response(ids, tools=specs or None, prompt_ids=prompt)
        except Exception:  # an answer that the package cannot read is its `text`, and gets its verdict
            return items_of_parts([text], key)
        said, calls = read.content or "", []
        for call in read.tool_calls:
            arguments = call.arguments
            if call.status in _CALLS and is_name(call.name) and arguments is not None:
                written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
                calls.append(WrittenCall(call.name, written))
            else:
                said += call.raw
        said = said.partition(stop)[0] if stop else said
        thought = read.reasoning_content
        items = [thought_item(thought, key)] if thought else []
        if said or calls or read.reasoning_complete is not False or not items:
            items += items_of_parts([said, *calls] if said else [*calls], key)
        return items
