"""How qualification works in the office: only the final state of the tables matters, not the way to it."""

from __future__ import annotations

import json
from typing import Any

Call = dict[str, Any]

#: Calls that only read, and two calls that fail.
LOOKS: list[Call] = [
    {"name": "company_directory_find_email_address", "arguments": {"name": "a"}},
    {"name": "email_search_emails", "arguments": {"query": "the", "page": 2}},
    {"name": "analytics_total_visits_count", "arguments": {}},
]
MISTAKES: list[Call] = [
    {"name": "email_delete_email", "arguments": {"email_id": "none"}},
    {"name": "calendar_update_event", "arguments": {"event_id": 7, "field": "colour", "new_value": "red"}},
]
MAIL: Call = {
    "name": "email_send_email",
    "arguments": {"recipient": "nobody@elsewhere.example", "subject": "Hello", "body": "Nobody asked for this."},
}


def oracle(task: Any) -> list[Any]:
    """All actions in one turn."""
    actions = _actions(task)
    return [{"calls": actions}, "Done."]


def preserving(task: Any) -> dict[str, Any]:
    """Other ways to the same state."""
    actions = _actions(task)
    return {
        "one_by_one": [*({"calls": [action]} for action in actions), "Done."],
        "other_order": [{"calls": actions[::-1]}, "Done."],
        "with_looks": [{"calls": LOOKS}, {"calls": [*actions, *LOOKS]}, "Done."],
        "after_mistakes": [{"calls": MISTAKES}, {"calls": actions}, "Done."],
        "with_nulls": [{"calls": [_with(action, unheard_of=None) for action in actions]}, "Done."],
        "without_words": [{"calls": actions}, ""],
        "updates_twice": [{"calls": [action for action in actions for _ in range(_repeats(action))]}, "Done."],
    }


def breaking(task: Any) -> dict[str, Any]:
    """States that differ slightly from the right state, and claims without calls."""
    actions = _actions(task)
    written = "\n".join(json.dumps(action) for action in actions)
    wrong = {
        "one_missing": actions[:-1],
        "one_more": [*actions, MAIL],
        "mail_taken_back": [*actions, MAIL, {"name": "email_delete_email", "arguments": {"email_id": "00000240"}}],
        "other_text": [*actions[:-1], _changed(actions[-1])],
        "one_argument_too_many": [*actions[:-1], _with(actions[-1], unheard_of="x")],
    }
    if not any("_update_" in action["name"] or "_delete_" in action["name"] for action in actions):
        wrong["twice"] = [*actions, *actions]
    scripts: dict[str, Any] = {name: [{"calls": calls}, "Done."] for name, calls in wrong.items() if calls}
    cut = {"text": "Now", "calls": actions, "incomplete": "max_output_tokens"}
    return scripts | {"in_words": f"I made these calls:\n{written}\nAll of them succeeded.", "never_run": [cut]}


def _actions(task: Any) -> list[Call]:
    return [{"name": action["name"], "arguments": json.loads(action["arguments"])} for action in task.ground_truth]


def _repeats(action: Call) -> int:
    """How often an action can be taken without another effect: an update twice, anything else once."""
    return 2 if "_update_" in action["name"] else 1


def _with(action: Call, **more: Any) -> Call:
    return {**action, "arguments": {**action["arguments"], **more}}


def _changed(action: Call) -> Call:
    """The action with an x appended to its last argument."""
    name = list(action["arguments"])[-1]
    return _with(action, **{name: f"{action['arguments'][name]}x"})
