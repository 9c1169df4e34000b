"""Formats in Parquet: `verl`, and `hf`, a folder that Hugging Face's `load_dataset` reads."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import orjson

from ludus.record import GOLD_FIELDS, Row
from ludus.runtime.encoding import encode
from ludus_data.export.conversation import STYLES, ChatMessages, Conversations, LeftOut, Losses, plain_text
from ludus_data.export.format import TOKEN_RECORDS, Choices, ExportRow, Format, Packed, Unit
from ludus_data.export.writing import no_place_in_table, stored_schema

_MESSAGE = frozenset({"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"})
_CALL_FIELDS = 3  #: id, type and function. A call may also have `extra_content`, which some servers want back


class Table(Format):
    """A format in Parquet. `schema` needs pyarrow."""

    at_once = 16

    def __init__(self, choices: Choices, losses: Losses) -> None:
        super().__init__(choices, losses)
        self._offered: list[dict[str, Any]] = []
        self._written: list[Any] = []

    def written_tools(self, tools: list[dict[str, Any]], write: Callable[[dict[str, Any]], Any]) -> list[Any]:
        """The tools in the table's form. Most rollouts share them, so the last ones are cached."""
        if tools is not self._offered:
            self._offered, self._written = tools, [write(tool) for tool in tools]
        return self._written

    def packed(self, rows: Iterable[ExportRow]) -> Packed:
        """Columns in Arrow's IPC format."""
        import pyarrow as pa

        try:
            batch = pa.RecordBatch.from_pylist(list(rows), schema=self._stored)
        except (pa.ArrowException, OverflowError) as error:
            raise no_place_in_table(error) from error
        columns: bytes = batch.serialize().to_pybytes()
        return columns

    @cached_property
    def _stored(self) -> Any:
        return stored_schema(self.schema())

    @abstractmethod
    def schema(self) -> Any:
        """The Arrow schema of the rows."""


class Verl(Table):
    """verl's columns for a prompt, and the `messages` and `tools` of its dataset for several turns."""

    name = "verl"
    file = "parquet"
    summary = "Parquet for verl: its prompt columns, and messages and tools for supervised fine-tuning"
    never = ("verdict values", "timings", "usage", "seed", *TOKEN_RECORDS)

    def _conversations(self) -> Conversations:
        return Conversations(self.losses, STYLES[self.choices.reasoning], as_objects=False)

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row."""
        (sample,) = unit
        conversation = self.conversations.of(sample)
        task, told = sample.task, sample.origin()
        told["repeat"], told["task"] = sample.repeat, _json(task)
        messages = _with_texts(conversation.messages, self.losses)
        yield {
            "data_source": sample.environment,
            "prompt": messages[: len(conversation.prompt)],
            "ability": sample.environment,
            "reward_model": {"style": "rule", "ground_truth": _ground_truth(task)},
            "messages": messages,
            "tools": self.written_tools(conversation.tools, _tool),
            "extra_info": told,
        }

    def schema(self) -> Any:
        """The columns. Arguments and parameters are JSON text: Arrow would add the keys of other tools as nulls."""
        import pyarrow as pa

        text = pa.string()
        function = pa.struct({"name": text, "arguments": text})
        message = pa.struct(
            {
                "role": text,
                "content": text,
                "reasoning_content": text,
                "tool_calls": pa.list_(pa.struct({"id": text, "type": text, "function": function})),
                "tool_call_id": text,
                "name": text,
            }
        )
        described = pa.struct({"name": text, "description": text, "parameters": text})
        origin = {name: text for name in ("rollout_id", "task_id", "environment", "outcome", "stop_reason", "receipt")}
        origin["task"] = text
        return pa.schema(
            {
                "data_source": text,
                "prompt": pa.list_(message),
                "ability": text,
                "reward_model": pa.struct({"style": text, "ground_truth": text}),
                "messages": pa.list_(message),
                "tools": pa.list_(pa.struct({"type": text, "function": described})),
                "extra_info": pa.struct(
                    {"repeat": pa.int64(), **origin, "reward": pa.float64(), "policy_versions": pa.list_(text)}
                ),
            }
        )


class HuggingFace(Table):
    """A dataset folder. Messages, tools and tasks are JSON, which `datasets` gives back as they were."""

    name = "hf"
    summary = "a dataset folder for Hugging Face's load_dataset: messages, tools, rewards and the task of each rollout"
    file = "folder"
    never = ("timings", "seed", *TOKEN_RECORDS)

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One row."""
        (sample,) = unit
        conversation = self.conversations.of(sample)
        row, columns = sample.row, sample.origin()
        named = row.get("verdict_fields")
        named = named if isinstance(named, list) else ()
        verdict = {name: row[name] for name in named if isinstance(name, str) and name in row}
        if isinstance(components := row.get("reward_components"), dict):
            verdict["reward_components"] = components
        columns["repeat"] = sample.repeat
        columns["messages"] = [*map(_readable, conversation.messages)]
        columns["tools"] = self.written_tools(conversation.tools, _json)
        columns["turn_rewards"] = sample.turn_rewards
        columns["task"] = _readable(sample.task)
        columns["verdict"] = _readable(verdict)
        columns["usage"] = _json(row.get("usage") or {})
        yield columns

    def schema(self) -> Any:
        """The columns. `datasets` gives columns of Arrow's JSON type back as objects."""
        import pyarrow as pa

        text, json_ = pa.string(), pa.json_()
        texts = ("rollout_id", "task_id", "environment", "outcome", "stop_reason", "receipt")
        columns: dict[str, Any] = {name: text for name in texts}
        columns |= {"repeat": pa.int64(), "reward": pa.float64()}
        columns |= {"policy_versions": pa.list_(text), "turn_rewards": pa.list_(pa.float64())}
        columns |= {"messages": pa.list_(json_), "tools": pa.list_(json_)}
        return pa.schema(columns | {name: json_ for name in ("task", "verdict", "usage")})


def _ground_truth(task: Row) -> str:
    """The right answer as a text if a field of the task holds it, else the verifier's fields as JSON."""
    for name in GOLD_FIELDS:
        if (gold := task.get(name)) is not None:
            break
    else:
        gold = {key: value for key, value in task.items() if key not in ("responses_create_params", "task_id")}
    return gold if isinstance(gold, str) else _json(gold)


def _with_texts(messages: ChatMessages, losses: Losses) -> ChatMessages:
    """The messages with text as their content, changed in place: an Arrow column has one type."""
    for message in messages:
        content = message["content"]
        is_text = isinstance(content, str)
        if is_text and (len(message) == 2 or (len(message) == 3 and "tool_call_id" in message)):
            continue
        if not _MESSAGE.issuperset(message):
            for key in sorted(message.keys() - _MESSAGE):
                losses.lose(f"messages[].{key}: the table has no column for it")
        for call in message.get("tool_calls") or ():
            if len(call) > _CALL_FIELDS:
                losses.lose("messages[].tool_calls[].extra_content: the table has no column for it")
        if "name" in message and not isinstance(message["name"], str):
            raise LeftOut("has no form as chat messages")
        if not is_text:
            if (text := plain_text(content)) is None:
                raise LeftOut("content that is not text")
            message["content"] = text
    return messages


def _json(value: Any) -> str:
    """JSON as a text. The bytes of `encode` take more memory: they keep the buffer that they were written in."""
    return encode(value).decode()


def _readable(value: Any) -> str:
    """JSON that `datasets` can read: its parser refuses, or rounds, integers beyond 64 bits."""
    try:
        return orjson.dumps(value).decode()  # refuses such integers
    except TypeError:
        data = encode(value)
        json.loads(data, parse_int=_check_integer)
        return data.decode()


def _check_integer(digits: str) -> None:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise LeftOut("an integer beyond 64 bits")


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {key: value for key in ("name", "description") if isinstance(value := function.get(key), str)}
    described["parameters"] = _json(function.get("parameters") or {})
    return {"type": "function", "function": described}
