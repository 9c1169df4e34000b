"""How qualification works at the desks: takes the row's actions and tells the results, with the rule-based user."""

from __future__ import annotations

from typing import Any

settings = {"agent.user": "scripted:ludus.agents.plain_user"}

_CHANGES = ("cancel", "return", "exchange", "change", "request", "renew", "reserve", "waive", "transfer", "approve")


def oracle(task: Any) -> list[Any]:
    """Take the right actions, ask the user for theirs, and tell the result."""
    return [*_actions(task.actions), _message(task)]


def preserving(task: Any) -> dict[str, Any]:
    """The same after questions, lookups and mistakes."""
    question = "May I ask for your email address, postcode, surname, booking reference, card number and year of birth?"
    looks = [{"call": name} for name in ("list_orders", "list_loans", "list_fines", "find_sailings")]
    scripts = {
        "after_questions": [question, *oracle(task)],
        "after_looks": [*looks, *oracle(task)],
        "after_a_mistake": [{"call": "find_customer", "arguments": {"email": 1}}, *oracle(task)],
        "text_with_calls": [
            {**turn, "text": "One moment."} if isinstance(turn, dict) else turn for turn in oracle(task)
        ],
    }
    if task.communicate:
        scripts["other_words"] = [*_actions(task.actions), _message(task, -1)]
        scripts["told_first"] = [*_actions(task.actions), f"Let me see: {_values(task)}.", _message(task, said=False)]
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Missing actions, extra actions, and words instead of actions."""
    extra = {"call": "transfer_to_human", "arguments": {"topic": "other"}}
    scripts = {
        "too_much": [*_actions(task.actions), extra, _message(task)],
        "never_ends": lambda request: "Which of them do you mean, and since when?",
        "not_answered": [*_actions(task.actions), {"items": []}],
    }
    changes = [action for action in task.actions if action.name.startswith(_CHANGES)]
    if changes:
        scripts["only_words"] = _message(task)
        last = max(task.actions.index(action) for action in changes)
        scripts["last_step_missing"] = [*_actions(task.actions[:last]), _message(task)]
    if len(task.actions) > 1:
        scripts["wrong_customer"] = [*_actions(task.actions[1:]), _message(task)]
    if task.communicate:
        scripts["not_told"] = [*_actions(task.actions), "It is done."]
        scripts["wrong_amount"] = [*_actions(task.actions), f"It is 1{_values(task)}1."]
        scripts["guesses"] = [*_actions(task.actions), _guesses(task)]
        scripts["told_in_a_call"] = [*_actions(task.actions), _noise(task), "It is done."]
    return scripts


def _actions(actions: list[Any]) -> list[Any]:
    return [
        f"Please {action.name.replace('_', ' ')}."
        if action.by == "user"
        else {"call": action.name, "arguments": action.arguments}
        for action in actions
    ]


def _message(task: Any, spelling: int = 0, *, said: bool = True) -> str:
    end = (
        "You are being transferred."
        if any(action.name == "transfer_to_human" for action in task.actions)
        else "Goodbye."
    )
    return f"That is settled: {_values(task, spelling)}. {end}" if said and task.communicate else f"Settled. {end}"


def _values(task: Any, spelling: int = 0) -> str:
    return ", ".join(spellings[spelling] for spellings in task.communicate)


def _guesses(task: Any) -> str:
    """The right values in a list of many dates and amounts."""
    days = [f"2025-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 32)]
    return ", ".join([_values(task), *days, *(f"{number}.{number % 90 + 10}" for number in range(100))])


def _noise(task: Any) -> dict[str, Any]:
    return {"call": "find_title", "arguments": {"title": _values(task)}}
