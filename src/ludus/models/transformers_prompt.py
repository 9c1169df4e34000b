"""Converts a request to prompt ids with the tokenizer's chat template, and generated text to items.

A prompt that continues the previous call repeats its ids: see `history`. Any other prompt is rendered as a whole.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ludus.dialects.chat_reasoning import OPENING, split_thought
from ludus.errors import Failure, UserError
from ludus.model import Request
from ludus.models import chatml
from ludus.models.history import take_prefill
from ludus.models.template_messages import CUT, TemplateMessages
from ludus.response import Item, reasoning


class Prompts:
    """A tokenizer with a chat template. Not thread-safe."""

    def __init__(self, tokenizer: Any, template_settings: dict[str, Any]) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the tokenizer has no chat template", "Set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._settings = template_settings
        self._template = TemplateMessages(str(tokenizer.chat_template), tokenizer.all_special_tokens)

    def text(self, request: Request) -> str:
        """Render a request with the template. The text may hold cut marks for `ids`."""
        settings = {**self._settings, **(request.params.get("chat_template_kwargs") or {})}
        how = "continue_final_message" if take_prefill(request, settings) else "add_generation_prompt"
        messages = list(self._template.messages(request))
        return self._render(messages, self._template.tools(request), {**settings, how: True})

    def ids(self, text: str) -> list[int]:
        """The ids of a rendered text."""
        return [id for piece in text.split(CUT) for id in self._encode(piece)]

    def decode(self, ids: list[int]) -> str:
        """The text of ids, including control tokens."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def end_ids(self) -> set[int]:
        """The ids that end a turn: the tokenizer's end token, and the control token after a turn in the template."""
        ends = {self._tokenizer.eos_token_id} - {None}
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": CUT}]
        try:
            whole = self._render(turn, None, {**self._settings, "continue_final_message": False})
            _, mark, after = whole.partition(CUT)
        except Failure:  # some templates refuse such a short conversation
            return ends
        closing = self._encode(after)[:1] if mark else []
        return ends | (set(closing) & set(self._tokenizer.all_special_ids))

    def _render(self, messages: list[Any], tools: Any, settings: dict[str, Any]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **settings)
        except Exception as error:
            raise Failure("bad_request", f"the chat template refuses this conversation: {error}") from error
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []


def items_of(text: str, prompt: str, *, key: str) -> list[Item]:
    """Parse generated text into thinking, messages and calls. The prompt may end with the opening think tag."""
    opened = OPENING if prompt.rstrip().endswith(OPENING) else ""
    thought, closed, rest = split_thought(opened + text)
    if thought is None:
        return chatml.parse(text, key=key)
    return [thought_item(thought, key), *(chatml.parse(rest, key=key) if closed else [])]


def thought_item(thought: str, key: str) -> Item:
    """The item of what a model thought."""
    digest = hashlib.sha256(f"{key}:{thought}".encode(errors="replace")).hexdigest()[:24]
    return reasoning(thought, id=f"rs_{digest}")
