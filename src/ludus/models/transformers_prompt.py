"""From a request to the ids of a prompt, through a tokenizer's own chat template, and from what was written to items.

- The prompt is what the template says. Where its text begins with the text of the call before, the ids of that call
  are repeated as they are and only the rest is tokenised, so a rollout stays one training sequence. Where the template
  changes the past (it drops old thinking, say), the prompt is tokenised anew.
- What a turn of ours looked like before it was parsed is given back to the template as it was written.
- The text of users, systems and tools is tokenised without control tokens, so none of them can forge a turn.
- A template that does not know tools gets them as the instructions of `chatml`.
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

#: What a session wrote: the place and the text of a parsed turn, and the text it was parsed from.
Written = dict[tuple[int, str], str]

_CUT = "\ufdd0"  # a noncharacter: no text holds it, and a text is tokenised in pieces where it stands


class Prompts:
    """A tokenizer with a chat template, asked for ids and texts. Call it from one thread at a time."""

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
        """What the template makes of a request. It may hold cuts, which `ids` understands."""
        params = request.params
        tools = [_nested(tool) for tool in chatml.offered_tools(params)] if self._tools else []
        messages = list(self._messages(request.input, params, written))
        settings = {**self._settings, **(params.get("chat_template_kwargs") or {})}
        return self._render(messages, self._harmless(tools) or None, settings, ask=True)

    def ids(self, text: str, before: Tokens | None) -> list[int]:
        """The ids of a prompt; they continue those of the call before where the text continues its text."""
        pieces = text.split(_CUT)
        if before is not None:
            past = [*before.prompt_ids, *before.generated_ids]
            said = self.decode(past)
            if past and "".join(pieces).startswith(said):
                first, *others = _without(pieces, len(said))
                return past + self._after(past[-1], first) + [id for piece in others for id in self._encode(piece)]
        return [id for piece in pieces for id in self._encode(piece)]

    def decode(self, ids: list[int]) -> str:
        """The text of ids, control tokens included."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def end_ids(self) -> set[int]:
        """The ids that end a turn: the tokenizer's, and the control token that the template writes after one."""
        ends = {self._tokenizer.eos_token_id} - {None}
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _CUT}]
        try:
            _, found, after = self._render(turn, None, self._settings, ask=False).partition(_CUT)
        except Failure:  # a template may want more of a conversation than this
            return ends
        closing = self._encode(after)[:1] if found else []
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
                yield self._own(raw) if raw is not None else self._assistant(turn, items, end)
            elif self._tools and turn.at >= 0 and items[turn.at].get("type") == "function_call_output":
                yield from (self._output(item) for item in items[turn.at : end] if "output" in item)
            else:
                yield {"role": turn.role, "content": self._harmless(turn.text)}

    def _own(self, raw: str) -> dict[str, Any]:
        """A turn as it was written. Templates that know thinking want it apart, and decide themselves what stays."""
        thought, closed, rest = split_thought(raw)
        if self._reasoning and thought is not None and closed:
            return {"role": "assistant", "content": rest, "reasoning_content": thought}
        return {"role": "assistant", "content": raw}

    def _assistant(self, turn: chatml.Turn, items: list[Item], end: int) -> dict[str, Any]:
        """A turn that is known by its items alone."""
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
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": self._harmless(text)}

    def _harmless(self, value: Any) -> Any:
        """The same value with a cut inside every control token that its texts spell."""
        if isinstance(value, str):
            return (
                self._special.sub(lambda found: f"{found[0][0]}{_CUT}{found[0][1:]}", value) if self._special else value
            )
        if isinstance(value, list):
            return [self._harmless(entry) for entry in value]
        return {key: self._harmless(entry) for key, entry in value.items()} if isinstance(value, dict) else value

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _after(self, last: int, text: str) -> list[int]:
        """The ids of a text that follows the id `last`: some tokenizers treat the start of a text in a special way."""
        with_last = self._encode(self.decode([last]) + text)
        return with_last[1:] if with_last[:1] == [last] else self._encode(text)


def items_of(text: str, prompt: str, *, key: str) -> list[Item]:
    """The thinking, messages and calls that a model wrote after a prompt; a template may open the thinking itself."""
    opened = OPENING if prompt.rstrip().endswith(OPENING) else ""
    thought, closed, rest = split_thought(opened + text)
    if thought is None:
        return chatml.parse(text, key=key)
    digest = hashlib.sha256(f"{key}:{thought}".encode(errors="replace")).hexdigest()[:24]
    return [reasoning(thought, id=f"rs_{digest}"), *(chatml.parse(rest, key=key) if closed else [])]


def remember(written: Written, at: int, items: list[Item], raw: str) -> None:
    """Note what the items that come at a place were parsed from."""
    thoughts = sum(item.get("type") == "reasoning" for item in items)
    if spoken := items[thoughts:]:
        written[at + thoughts, chatml.assistant_text(spoken)] = raw


def _without(pieces: list[str], count: int) -> list[str]:
    """The pieces after the first `count` characters; at least one."""
    for index, piece in enumerate(pieces):
        if count <= len(piece):
            return [piece[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return [""]


def _nested(tool: Item) -> dict[str, Any]:
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _nested_call(item: Item) -> dict[str, Any]:
    """A call as templates want it, its arguments decoded where they are JSON."""
    arguments = item.get("arguments") or "{}"
    try:
        arguments = json.loads(arguments)
    except ValueError:
        pass
    return {"type": "function", "id": item.get("call_id"), "function": {"name": item["name"], "arguments": arguments}}
