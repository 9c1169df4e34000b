"""`atif`: the Agent Trajectory Interchange Format, version 1.7, that Harbor and NeMo Relay read.

Each line is one trajectory document. A step of the agent is one model call where the record says which items each call
wrote, so its token ids and logprobs belong to that step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import ludus
from ludus.dialects.chat_items import is_assistant, kind_of, plain_message, thinking_turn, to_messages
from ludus.dialects.chat_turn import ChatMessage
from ludus.errors import Failure
from ludus.response import Item
from ludus_data.export.conversation import LeftOut, Losses, OfferedTools, argument_object, plain_text
from ludus_data.export.format import Choices, ExportRow, Format, Unit
from ludus_data.recorded import Sample

VERSION = "ATIF-v1.7"
_IMAGE = re.compile(
    r"^data:image/(png|jpeg|gif|webp);base64,|^https?://[^?#]*\.(png|jpe?g|gif|webp)(?:[?#]|$)", re.IGNORECASE
)
_NO_CALL: dict[str, Any] = {}
_SOURCES = {"user": "user", "system": "system", "developer": "system"}


class Atif(Format):
    """One trajectory a row."""

    name = "atif"
    summary = f"trajectories in the format that Harbor and NeMo Relay read ({VERSION}), one a line"
    never = ("timings", "seed", "when each step happened", "fields of the task that only the verifier reads")
    offers = frozenset()

    def __init__(self, choices: Choices, losses: Losses) -> None:
        super().__init__(choices, losses)
        self._tools = OfferedTools("ATIF")

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """The trajectory of a rollout."""
        (sample,) = unit
        lost: list[str] = []
        try:
            steps = _Steps(sample, lost).all()
            tools = self._tools.of(sample.tools, lost) if sample.tools else []
        except (Failure, AttributeError, TypeError, KeyError) as error:
            raise LeftOut("has no form as a trajectory") from error
        for step in steps:
            if step["source"] == "agent":
                break
        else:
            raise LeftOut("the model wrote nothing")
        if lost:
            self.losses.add(lost, "items")
        agent: dict[str, Any] = {"name": "ludus", "version": ludus.__version__}
        if isinstance(model := sample.response.get("model"), str) and model:
            agent["model_name"] = model
        if tools:
            agent["tool_definitions"] = tools
        yield {
            "schema_version": VERSION,
            "session_id": sample.rollout_id,
            "trajectory_id": sample.rollout_id,
            "agent": agent,
            "steps": steps,
            "final_metrics": _final_metrics(sample, len(steps)),
            "extra": sample.origin(),
        }


class _Steps:
    """Builds the steps of one trajectory."""

    def __init__(self, sample: Sample, lost: list[str]) -> None:
        self._sample, self._lost = sample, lost
        self._steps: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}  # the step of each tool call
        self._history: list[int] = []  # the token ids of the last model call

    def all(self) -> list[dict[str, Any]]:
        """All steps: the prompt's, then those of the rollout."""
        if instructions := self._sample.instructions:
            self._add_step("system", str(instructions))
        if (prompt := self._sample.prompt) is None:
            raise LeftOut("has no prompt")
        self._add_items(prompt, [], copied=True)
        calls = self._sample.calls
        wrote = [call for call in calls[:-1] if call.get("items")]  # a call may have written nothing
        self._add_items(self._sample.output, wrote + calls[-1:], copied=False)
        return self._steps

    def _add_items(self, items: list[Item], calls: list[dict[str, Any]], *, copied: bool) -> None:
        position, waiting = 0, iter(calls)
        while position < len(items):
            item = items[position]
            call: dict[str, Any] | None = None
            if item.get("type") == "reasoning" and (thinking := thinking_turn(items, position)) is not None:
                call = next(waiting, _NO_CALL)
                if call.get("items") in (None, 2):  # the usual case: a thought and what came of it
                    self._add_turn(thinking, call, copied=copied)
                    position += 2
                    continue
            message = plain_message(item)  # the usual case: an item that is a message
            if message["role"] != "assistant" if message else not is_assistant(kind_of(item), item):
                for answer in (message,) if message else to_messages([item], lost=self._lost):
                    self._add_answer(answer)
                position += 1
                continue
            call = next(waiting, _NO_CALL) if call is None else call
            written = call.get("items")
            end = position + 1 if written == 1 else self._end_of_turn(items, position, written)
            if message is None or end > position + 1:
                message = next(iter(to_messages(items[position:end], lost=self._lost)), {})
            self._add_turn(message, call, copied=copied)
            position = end

    def _end_of_turn(self, items: list[Item], start: int, written: Any) -> int:
        """The end of one model call's items. The first item is the assistant's."""
        end, most = start + 1, len(items)
        if isinstance(written, int) and written > 0:
            most = min(start + written, most)
        while end < most and is_assistant(kind_of(items[end]), items[end]):
            end += 1
        return end

    def _add_step(self, source: str, message: str | list[dict[str, Any]]) -> dict[str, Any]:
        step: dict[str, Any] = {"step_id": len(self._steps) + 1, "source": source, "message": message}
        self._steps.append(step)
        return step

    def _add_turn(self, message: ChatMessage, call: dict[str, Any], *, copied: bool) -> None:
        content = message.get("content")
        step = self._add_step("agent", content if isinstance(content, str) else self._text(content))
        if len(message) > 2:  # more than a role and a text
            if thought := message.get("reasoning_content"):
                step["reasoning_content"] = thought
            if refusal := message.get("refusal"):
                step["extra"] = {"refusal": refusal}
            if tool_calls := message.get("tool_calls"):
                step["tool_calls"] = [_tool_call(tool_call) for tool_call in tool_calls]
                for tool_call in tool_calls:
                    self._calls[tool_call["id"]] = step
        if "prefix" in call:
            step["metrics"] = self._metrics(call)
        if copied:
            step["is_copied_context"] = True

    def _add_answer(self, message: ChatMessage) -> None:
        content = message.get("content")
        shown = content if isinstance(content, str) else self._parts(content)
        if message["role"] != "tool":
            self._add_step(_SOURCES.get(message["role"], "user"), shown)
            return
        call_id = message["tool_call_id"]
        if (step := self._calls.get(call_id)) is None:
            self._add_step("system", "")["observation"] = {"results": [{"content": shown}]}
            return
        result = {"source_call_id": call_id, "content": shown}
        if "observation" in step:
            step["observation"]["results"].append(result)
        else:
            step["observation"] = {"results": [result]}

    def _parts(self, content: Any) -> str | list[dict[str, Any]]:
        """Content as a text, or as parts if it has images."""
        parts = [part if part.get("type") == "text" else _image(part) for part in content or ()]
        shown = [part for part in parts if part is not None]
        only_text = all(part["type"] == "text" for part in shown)
        return self._text(content) if only_text or len(shown) < len(parts) else shown

    def _text(self, content: Any) -> str:
        if (text := plain_text(content)) is not None:
            return text
        self._lost.append("input[].content: only its text is carried")
        return "".join(str(part["text"]) for part in content if part.get("type") == "text")

    def _metrics(self, call: dict[str, Any]) -> dict[str, Any]:
        """The token ids and logprobs of a model call; the whole prompt, as ATIF wants it."""
        prompt = self._history[: call["prefix"]] + call["prompt_ids"]
        self._history = prompt + call["generated_ids"]
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(call["generated_ids"]),
            "prompt_token_ids": prompt,
            "completion_token_ids": call["generated_ids"],
            "logprobs": call["logprobs"],
            "extra": {"policy_version": call.get("policy_version"), "sampling": call.get("sampling")},
        }


def _image(part: dict[str, Any]) -> dict[str, Any] | None:
    """An image as ATIF has it: its type and its URL, which may hold the image. None for another part or type."""
    url = (part.get("image_url") or {}).get("url") if part.get("type") == "image_url" else None
    kind = _IMAGE.search(url) if isinstance(url, str) else None
    if kind is None:
        return None
    media_type = f"image/{(kind[1] or kind[2]).lower().replace('jpg', 'jpeg')}"
    return {"type": "image", "source": {"media_type": media_type, "path": url}}


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    name, text = function["name"], function["arguments"]
    try:
        return {"tool_call_id": call["id"], "function_name": name, "arguments": argument_object(text)}
    except LeftOut:  # ATIF wants an object: the model's text goes beside it
        extra = {"arguments_text": text}
        return {"tool_call_id": call["id"], "function_name": name, "arguments": {}, "extra": extra}


def _final_metrics(sample: Sample, steps: int) -> dict[str, Any]:
    metrics: dict[str, Any] = {"total_steps": steps, "extra": {"reward": sample.reward}}
    usage = sample.row.get("usage")
    if usage and isinstance(usage, dict):
        for name, key in (("total_prompt_tokens", "input_tokens"), ("total_completion_tokens", "output_tokens")):
            if isinstance(count := usage.get(key), int):
                metrics[name] = count
    return metrics
