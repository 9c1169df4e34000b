"""Well-known layouts of datasets, and how to tell which one a file has.

A layout is a mapping and the fields that its rows must have. The first layout that fits the first rows wins, so special
layouts stand before general ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.record import Row
from ludus_data.conversations import is_conversation
from ludus_data.mapping import RowMapping

Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Layout:
    """A layout: its name, the fields by which it is known, and the mapping to tasks."""

    name: str
    about: str
    needs: dict[str, Check]
    mapping: RowMapping

    def fits(self, row: Row) -> bool:
        """Whether a row has the fields of this layout."""
        return all(check(_inside(row, field)) for field, check in self.needs.items())


def find_layout(name: str) -> Layout:
    """The layout of a name."""
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise UserError(f"unknown layout {name:.60}", did_you_mean(name, [layout.name for layout in LAYOUTS]))


def fitting_layout(rows: Sequence[Row]) -> Layout | None:
    """The layout that the first rows of a file have; None if there is none."""
    return next((layout for layout in LAYOUTS if rows and all(map(layout.fits, rows))), None)


def detect_layout(rows: Sequence[Row]) -> Layout:
    """The layout that the first rows of a file have, or an error that lists their fields."""
    if (layout := fitting_layout(rows)) is not None:
        return layout
    fields = ", ".join(key[:40] for key in list(rows[0])[:12]) if rows else "none"
    hint = "Say what is what: --map FIELD=prompt --map FIELD=expected_answer"
    raise UserError(f"no known layout has these fields: {fields}", hint)


def _inside(row: Any, field: str) -> Any:
    for step in field.split("."):
        row = row.get(step) if isinstance(row, dict) else None
    return row


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _texts(value: Any) -> bool:
    return _texts_or_none(value) and bool(value)


def _texts_or_none(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _task(value: Any) -> bool:
    return _text(value) and value.startswith("{") and '"responses_create_params"' in value


def _present(value: Any) -> bool:
    return value is not None


def _absent(value: Any) -> bool:
    return value is None


def _index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _prompt(value: Any) -> bool:
    return _text(value) or is_conversation(value)


def _turns(value: Any) -> bool:
    return is_conversation(value) and "from" in value[0]


def _marked(value: Any) -> bool:
    return _text(value) and "####" in value


def _with_box(value: Any) -> bool:
    return _text(value) and "\\boxed{" in value


def _layout(name: str, about: str, needs: dict[str, Check], map: dict[str, str], **more: Any) -> Layout:
    return Layout(name, about, needs, RowMapping(map=map, **more))


_TO_GOLD = "expected_answer"

LAYOUTS = (
    _layout("tasks", "rows of Ludus and NeMo Gym", {"responses_create_params.input": _present}, {}),
    _layout(
        "ludus_verl",
        "rows of ludus data export --to verl",
        {"reward_model": _present, "extra_info.rollout_id": _text, "extra_info.task": _task},
        {},
        task="extra_info.task",
    ),
    _layout(
        "verl",
        "prompt, reward_model.ground_truth",
        {"prompt": _prompt, "reward_model.ground_truth": _present},
        {"prompt": "prompt", "reward_model.ground_truth": _TO_GOLD},
    ),
    _layout(
        "arc",
        "question, choices with labels, answerKey",
        {"question": _text, "choices.text": _texts, "choices.label": _texts, "answerKey": _text},
        {"question": "prompt", "answerKey": _TO_GOLD, "choices": "options"},
    ),
    _layout(
        "mmlu",
        "question, choices, answer as a number",
        {"question": _text, "choices": _texts, "answer": _index},
        {"question": "prompt", "answer": _TO_GOLD, "choices": "options"},
    ),
    _layout(
        "inspect",
        "input, target, choices, id",
        {"input": _prompt, "target": _present},
        {"input": "prompt", "target": _TO_GOLD, "choices": "options", "id": "task_id"},
        optional=["choices", "id"],
    ),
    _layout(
        "alpaca",
        "instruction, input, output",
        {"instruction": _text, "output": _text},
        {"instruction": "prompt", "input": "context", "output": _TO_GOLD},
        optional=["input"],
    ),
    _layout(
        "sharegpt",
        "conversations with from and value",
        {"conversations": _turns},
        {"system": "system", "conversations": "prompt"},
        optional=["system"],
    ),
    _layout(
        "messages",
        "messages, tools; a last answer of the model becomes expected_answer",
        {"messages": is_conversation},
        {"messages": "prompt", "tools": "tools"},
        optional=["tools"],
    ),
    _layout(
        "conversations",
        "conversations with role and content",
        {"conversations": is_conversation},
        {"conversations": "prompt", "tools": "tools"},
        optional=["tools"],
    ),
    _layout(
        "gsm8k",
        "question, answer with ####",
        {"question": _text, "answer": _marked},
        {"question": "prompt", "answer": _TO_GOLD},
        after={"answer": "####"},
    ),
    _layout(
        "math",
        "problem, solution with \\boxed{}",
        {"problem": _text, "solution": _with_box, "answer": _absent},
        {"problem": "prompt", "solution": _TO_GOLD},
        boxed=["solution"],
    ),
    _layout(
        "problem_answer",
        "problem, answer",
        {"problem": _text, "answer": _present},
        {"problem": "prompt", "answer": _TO_GOLD},
    ),
    _layout(
        "squad",
        "context, question, answers.text",
        {"context": _text, "question": _text, "answers.text": _texts_or_none},
        {"question": "prompt", "context": "context", "answers.text.0": _TO_GOLD},
        optional=["answers.text.0"],
    ),
    _layout(
        "humaneval",
        "prompt, test, entry_point",
        {"prompt": _text, "test": _text, "entry_point": _text},
        {"prompt": "prompt"},
    ),
    _layout("mbpp", "text, code, test_list", {"text": _text, "code": _text, "test_list": _texts}, {"text": "prompt"}),
    _layout(
        "trl_preference",
        "prompt, chosen, rejected",
        {"prompt": _prompt, "chosen": _present, "rejected": _present},
        {"prompt": "prompt"},
    ),
    _layout(
        "trl_completion",
        "prompt, completion",
        {"prompt": _prompt, "completion": _prompt},
        {"prompt": "prompt", "completion": _TO_GOLD},
    ),
    _layout(
        "verifiers",
        "prompt, answer, info, example_id",
        {"prompt": _prompt, "answer": _present},
        {"prompt": "prompt", "answer": _TO_GOLD},
    ),
    _layout(
        "trl_solution",
        "prompt, solution",
        {"prompt": _prompt, "solution": _present},
        {"prompt": "prompt", "solution": _TO_GOLD},
    ),
    _layout(
        "question_answer",
        "question, answer",
        {"question": _text, "answer": _present},
        {"question": "prompt", "answer": _TO_GOLD},
    ),
    _layout("trl_prompt", "prompt", {"prompt": _prompt}, {"prompt": "prompt"}),
)
