"""Converts a request to prompt ids with the tokenizer's chat template, and generated text to items.

- The template renders the text of the prompt. If the text starts with the text of the previous call, the ids of that
  call are repeated and only the rest is tokenised, so a rollout stays one training sequence. If the template changes
  earlier text (it may drop old thinking), the whole prompt is tokenised.
- The template gets the model's own turns as the text that the model wrote, before parsing.
- The text of users, systems and tools is tokenised without control tokens, so none of them can forge a turn.
- For a template without tool support, the tools become instructions in the format of `chatml`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from ludus.dialects.chat_reasoning import CLOSING, OPENING, split_thought
from ludus.errors import Failure, UserError
from ludus.model import Request
from ludus.models import chatml
from ludus.response import Item, Response, reasoning, texts_of
from ludus.tokens import Tokens

#: The turns of a session: index and text of a parsed turn, and the raw text that it was parsed from.
Written = dict[tuple[int, str], str]

_CUT = "\ufdd0"  # a Unicode noncharacter that splits a text into pieces, which are tokenised separately


class Prompts:
    """A tokenizer with a chat template. Not thread-safe."""

    def __init__(self, tokenizer: Any, template_settings: dict[str, Any]) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the tokenizer has no chat template", "Set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._settings = template_settings
        source = str(tokenizer.chat_template)
        self._tools = re.search(r"\btools\b", source) is not None
        self._reasoning = "reasoning_content" in source
        special = sorted(map(re.escape, tokenizer.all_special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(special)) if special else None

    def text(self, request: Request, written: Written) -> str:
        """Render a request with the template. The text may hold cut marks for `ids`."""
        params = request.params
        tools = [_nested(tool) for tool in chatml.offered_tools(params)] if self._tools else []
        messages = list(self._messages(request.input, params, written))
        settings = {**self._settings, **(params.get("chat_template_kwargs") or {})}
        return self._render(messages, self._split_control(tools) or None, settings, ask=True)

    def ids(self, text: str, before: Tokens | None) -> list[int]:
        """The ids of a prompt. They continue the ids of the previous call if the text continues its text."""
        pieces = text.split(_CUT)
        if before is not None:
            past = [*before.prompt_ids, *before.generated_ids]
            past_text = self.decode(past)
            if past and "".join(pieces).startswith(past_text):
                first, *others = _without(pieces, len(past_text))
                return past + self._after(past[-1], first) + [id for piece in others for id in self._encode(piece)]
        return [id for piece in pieces for id in self._encode(piece)]

    def decode(self, ids: list[int]) -> str:
        """The text of ids, including control tokens."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def end_ids(self) -> set[int]:
        """The ids that end a turn: the tokenizer's end token, and the control token after a turn in the template."""
        ends = {self._tokenizer.eos_token_id} - {None}
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _CUT}]
        try:
            _, mark, after = self._render(turn, None, self._settings, ask=False).partition(_CUT)
        except Failure:  # some templates refuse such a short conversation
            return ends
        closing = self._encode(after)[:1] if mark else []
        return ends | (set(closing) & set(self._tokenizer.all_special_ids))

    def _render(self, messages: list[Any], tools: Any, settings: dict[str, Any], *, ask: bool) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=ask, tokenize=False, **settings
            )
        except Exception as error:
            raise Failure("bad_request", f"the chat template refuses this conversation: {error}") from error
        return text

    def _messages(self, items: list[Item], params: dict[str, Any], written: Written) -> Iterator[dict[str, Any]]:
        turns = chatml.turns(items, {**params, "tools": None} if self._tools else params)
        ends = [turn.at for turn in turns[1:]] + [len(items)]
        for turn, end in zip(turns, ends, strict=True):
            if turn.role == "assistant":
                raw = written.get((turn.at, turn.text))
                yield self._written_turn(raw) if raw is not None else self._turn_of_items(turn, items, end)
            elif self._tools and turn.at >= 0 and items[turn.at].get("type") == "function_call_output":
                yield from (self._output(item) for item in items[turn.at : end] if "output" in item)
            else:
                yield {"role": turn.role, "content": self._split_control(turn.text)}

    def _written_turn(self, raw: str) -> dict[str, Any]:
        """A turn of the model, as it wrote it. A template with `reasoning_content` gets the thinking separately."""
        thought, closed, rest = split_thought(raw)
        if self._reasoning and thought is not None and closed:
            return {"role": "assistant", "content": rest, "reasoning_content": thought}
        return {"role": "assistant", "content": raw}

    def _turn_of_items(self, turn: chatml.ChatmlTurn, items: list[Item], end: int) -> dict[str, Any]:
        """An assistant turn whose raw text is unknown: it is built from the items."""
        group = [item for item in items[turn.at : end] if item.get("type") != "reasoning"]
        calls = [item for item in group if item.get("type") == "function_call"] if self._tools else []
        text = chatml.assistant_text([item for item in group if not calls or item.get("type") != "function_call"])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [_nested_call(item) for item in calls]
        before = items[turn.at - 1] if turn.at > 0 else {}
        if before.get("type") == "reasoning":
            thought = Response.of(before).reasoning
            if self._reasoning:
                message["reasoning_content"] = thought
            else:
                message["content"] = f"{OPENING}{thought}{CLOSING}{text}"
        return message

    def _output(self, item: Item) -> dict[str, Any]:
        output = item["output"]
        text = output if isinstance(output, str) else texts_of({"content": output})
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": self._split_control(text)}

    def _split_control(self, value: Any) -> Any:
        """The same value with a cut mark inside every control token in its texts."""
        if isinstance(value, str):
            return (
                self._special.sub(lambda token: f"{token[0][0]}{_CUT}{token[0][1:]}", value) if self._special else value
            )
        if isinstance(value, list):
            return [self._split_control(entry) for entry in value]
        return {key: self._split_control(entry) for key, entry in value.items()} if isinstance(value, dict) else value

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _after(self, last: int, text: str) -> list[int]:
        """The ids of a text that follows the id `last`. Some tokenizers treat the start of a text differently."""
        with_last = self._encode(self.decode([last]) + text)
        return with_last[1:] if with_last[:1] == [last] else self._encode(text)


def items_of(text: str, prompt: str, *, key: str) -> list[Item]:
    """Parse generated text into thinking, messages and calls. The prompt may end with the opening think tag."""
    opened = OPENING if prompt.rstrip().endswith(OPENING) else ""
    thought, closed, rest = split_thought(opened + text)
    if thought is None:
        return chatml.parse(text, key=key)
    digest = hashlib.sha256(f"{key}:{thought}".encode(errors="replace")).hexdigest()[:24]
    return [reasoning(thought, id=f"rs_{digest}"), *(chatml.parse(rest, key=key) if closed else [])]


def remember(written: Written, at: int, items: list[Item], raw: str) -> None:
    """Store the raw text that the items at index `at` were parsed from."""
    thoughts = sum(item.get("type") == "reasoning" for item in items)
    if spoken := items[thoughts:]:
        written[at + thoughts, chatml.assistant_text(spoken)] = raw


def _without(pieces: list[str], count: int) -> list[str]:
    """The pieces without their first `count` characters; at least one piece."""
    for index, piece in enumerate(pieces):
        if count <= len(piece):
            return [piece[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return [""]


def _nested(tool: Item) -> dict[str, Any]:
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _nested_call(item: Item) -> dict[str, Any]:
    """A call in the nested form of chat, with parsed arguments if they are JSON."""
    arguments = item.get("arguments") or "{}"
    try:
        arguments = json.loads(arguments)
    except ValueError:
        pass
    return {"type": "function", "id": item.get("call_id"), "function": {"name": item["name"], "arguments": arguments}}
