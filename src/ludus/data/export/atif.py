"""`atif`: the Agent Trajectory Interchange Format, version 1.7, that Harbor and NeMo Relay read.

Each line is one trajectory document. A step of the agent is one model call where the record says which items each call
wrote, so its token ids and logprobs belong to that step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ludus
from ludus.data.export.conversation import LeftOut, argument_object, plain_text
from ludus.data.export.format import ExportRow, Format, Unit
from ludus.data.recorded import Sample
from ludus.dialects.chat_items import is_assistant, kind_of, to_messages
from ludus.dialects.chat_tools import tools_to_chat
from ludus.dialects.conversion import Conversion
from ludus.errors import Failure
from ludus.response import Item

VERSION = "ATIF-v1.7"
_SOURCES = {"user": "user", "system": "system", "developer": "system"}


class Atif(Format):
    """One trajectory a row."""

    name = "atif"
    summary = f"trajectories in the format that Harbor and NeMo Relay read ({VERSION}), one a line"
    never = ("timings", "seed", "when each step happened", "the task's verifier fields")
    offers = frozenset()

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """The trajectory of a rollout."""
        (sample,) = unit.samples
        lost: list[str] = []
        try:
            steps = _Steps(sample, lost).all()
            tools = tools_to_chat(sample.tools, Conversion("bad_request", "ATIF", lost)) if sample.tools else []
        except (Failure, AttributeError, TypeError, KeyError) as error:
            raise LeftOut("has no form as a trajectory") from error
        if not any(step["source"] == "agent" for step in steps):
            raise LeftOut("the model wrote nothing")
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
            "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
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
            self._steps.append({"source": "system", "message": str(instructions)})
        self._add_items(self._sample.prompt, [], copied=True)
        self._add_items(self._sample.output, list(self._sample.calls), copied=False)
        return self._steps

    def _add_items(self, items: list[Item], calls: list[dict[str, Any]], *, copied: bool) -> None:
        position = 0
        while position < len(items):
            item = items[position]
            if not is_assistant(kind_of(item), item):
                self._add_answer(item)
                position += 1
                continue
            call = calls.pop(0) if calls else {}
            while calls and not call.get("items"):  # a call that wrote nothing
                call = calls.pop(0)
            end = self._end_of_turn(items, position, call.get("items"))
            self._add_turn(items[position:end], call, copied=copied)
            position = end

    def _end_of_turn(self, items: list[Item], start: int, written: Any) -> int:
        most = start + written if isinstance(written, int) and written > 0 else len(items)
        end = start
        while end < min(most, len(items)) and is_assistant(kind_of(items[end]), items[end]):
            end += 1
        return end

    def _add_turn(self, items: list[Item], call: dict[str, Any], *, copied: bool) -> None:
        found = to_messages(items, lost=self._lost)
        message: dict[str, Any] = found[0] if found else {}
        step: dict[str, Any] = {"source": "agent", "message": self._text(message.get("content"))}
        if thought := message.get("reasoning_content"):
            step["reasoning_content"] = thought
        if refusal := message.get("refusal"):
            step["extra"] = {"refusal": refusal}
        if made := message.get("tool_calls"):
            step["tool_calls"] = [_tool_call(each) for each in made]
            self._calls.update({each["id"]: step for each in made})
        if metrics := self._metrics(call):
            step["metrics"] = metrics
        if copied:
            step["is_copied_context"] = True
        self._steps.append(step)

    def _add_answer(self, item: Item) -> None:
        (message,) = to_messages([item], lost=self._lost) or (None,)
        if message is None:
            return
        text = self._text(message.get("content"))
        if message["role"] != "tool":
            self._steps.append({"source": _SOURCES.get(message["role"], "user"), "message": text})
            return
        call_id = message["tool_call_id"]
        if (step := self._calls.get(call_id)) is None:
            self._steps.append({"source": "system", "message": "", "observation": {"results": [{"content": text}]}})
            return
        step.setdefault("observation", {"results": []})["results"].append({"source_call_id": call_id, "content": text})

    def _text(self, content: Any) -> str:
        """Content as a text. ATIF refers to images by path, and a rollout has them inline or as a URL."""
        text = plain_text(content)
        if text is not None:
            return text
        self._lost.append("input[].content: only its text is carried")
        return "".join(str(part["text"]) for part in content if part.get("type") == "text")

    def _metrics(self, call: dict[str, Any]) -> dict[str, Any]:
        """The token ids and logprobs of a model call; the whole prompt, as ATIF wants it."""
        if "prefix" not in call:
            return {}
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


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    made: dict[str, Any] = {"tool_call_id": call["id"], "function_name": function["name"]}
    try:
        return {**made, "arguments": argument_object(function["arguments"])}
    except LeftOut:  # ATIF wants an object: the text that the model wrote is kept beside it
        return {**made, "arguments": {}, "extra": {"arguments_text": function["arguments"]}}


def _final_metrics(sample: Sample, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {"total_steps": steps, "extra": {"reward": sample.reward}}
    usage = sample.row.get("usage")
    for name, key in (("total_prompt_tokens", "input_tokens"), ("total_completion_tokens", "output_tokens")):
        if isinstance(usage, dict) and isinstance(count := usage.get(key), int):
            found[name] = count
    return found
