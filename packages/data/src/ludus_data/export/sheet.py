"""`csv`: one line a rollout, for a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ludus.response import Item, is_message, texts_of
from ludus_data.export.format import ExportRow, Format, Unit

COLUMNS = (
    "rollout_id",
    "task_id",
    "repeat",
    "environment",
    "outcome",
    "reward",
    "mask",
    "stop_reason",
    "model_calls",
    "tool_calls",
    "characters",
    "input_tokens",
    "output_tokens",
    "seconds",
    "receipt",
    "policy_versions",
    "prompt",
    "answer",
)
#: A spreadsheet runs a cell that begins with one of these signs as a formula. Some skip invisible characters before the
#: sign (spaces, control characters, zero-width marks), and accept its full-width and small forms.
_UNSEEN = (
    r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SIGNS = "=+@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b-"
_FORMULA = re.compile(rf"[\t\r\n]|[{_UNSEEN}]*[{_SIGNS}]")
_FORMULA_START = re.compile(rf"[{_UNSEEN}{_SIGNS}]")
#: The most characters that spreadsheets keep in a cell.
_CELL = 32_000


class Sheet(Format):
    """One line a rollout."""

    name = "csv"
    summary = "one line a rollout, for a spreadsheet: numbers, ids, the prompt and the last answer as text"
    file = "csv"
    never = ("messages between the prompt and the last answer", "tools", "token ids and logprobs", "verdict values")
    offers = frozenset()
    header = (",".join(COLUMNS) + "\r\n").encode()

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """One line."""
        (sample,) = unit
        row, output = sample.row, sample.output
        usage, timings = _object(row.get("usage")), _object(row.get("timings"))
        texts = [
            sample.rollout_id,
            sample.task_id,
            sample.environment,
            str(row.get("mask") or ""),
            sample.stop_reason,
            sample.receipt,
            " ".join(sample.policy_versions),
            self._cut("prompt", _last_text(sample.prompt or [])),
            self._cut("answer", _last_answer(output)),
        ]
        if _FORMULA_START.search("".join([text[:1] for text in texts])):  # rare: one search for all texts
            texts = [*map(_no_formula, texts)]
        rollout_id, task_id, environment, mask, stop_reason, receipt, policy_versions, prompt, answer = texts
        yield {  # in the order of COLUMNS
            "rollout_id": rollout_id,
            "task_id": task_id,
            "repeat": sample.repeat,
            "environment": environment,
            "outcome": sample.outcome,
            "reward": sample.reward,
            "mask": mask,
            "stop_reason": stop_reason,
            "model_calls": len(sample.calls),
            "tool_calls": [item.get("type") for item in output if isinstance(item, dict)].count("function_call"),
            "characters": sample.length,
            "input_tokens": _number(usage.get("input_tokens")),
            "output_tokens": _number(usage.get("output_tokens")),
            "seconds": _number(timings.get("total")),
            "receipt": receipt,
            "policy_versions": policy_versions,
            "prompt": prompt,
            "answer": answer,
        }

    def line(self, row: ExportRow) -> bytes:
        """A line, quoted as Python's `csv` does but faster (benchmarks/export_file.py)."""
        cells = [value if isinstance(value, str) else "" if value is None else str(value) for value in row.values()]
        start = ",".join(cells[:-2])
        if start.count(",") > len(cells) - 3 or '"' in start or "\n" in start or "\r" in start:
            start = ",".join(map(_cell, cells[:-2]))
        return f"{start},{_cell(cells[-2])},{_cell(cells[-1])}\r\n".encode("utf-8", "replace")

    def _cut(self, name: str, text: str) -> str:
        if len(text) > _CELL:
            self.losses.lose(f"{name}: longer than a cell ({_CELL:,} characters)")
        return text[:_CELL]


def _cell(text: str) -> str:
    if '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return f'"{text}"' if "," in text or "\n" in text or "\r" in text else text


def _no_formula(text: str) -> str:
    """A text that a spreadsheet shows as text."""
    return "'" + text if _FORMULA.match(text) else text


def _last_text(items: list[Item]) -> str:
    return next((text for item in reversed(items) if (text := _text(item))), "")


def _last_answer(output: list[Item]) -> str:
    return next((text for item in reversed(output) if (text := _text(item)) and is_message(item)), "")


def _text(item: Item) -> str:
    return texts_of(item) if isinstance(item, dict) and isinstance(item.get("content"), (str, list)) else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else ""
