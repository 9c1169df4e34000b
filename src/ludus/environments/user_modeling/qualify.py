"""How qualification works at the desks: what the row says is right, done and told, with the user that follows rules."""

from __future__ import annotations

from typing import Any

settings = {"agent.user": "scripted:ludus.agents.plain_user"}

_CHANGES = ("cancel", "return", "exchange", "change", "request", "renew", "reserve", "waive", "transfer", "approve")


def oracle(task: Any) -> list[Any]:
    """Do what is right, ask the user for their part in it, and tell the result."""
    return [*_done(task.actions), _told(task)]


def preserving(task: Any) -> dict[str, Any]:
    """The same after questions, looks and mistakes."""
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
        scripts["other_words"] = [*_done(task.actions), _told(task, -1)]
        scripts["told_first"] = [*_done(task.actions), f"Let me see: {_values(task)}.", _told(task, said=False)]
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Half of it, too much of it, and words instead of it."""
    scripts = {
        "too_much": [*_done(task.actions), {"call": "transfer_to_human", "arguments": {"topic": "other"}}, _told(task)],
        "never_ends": lambda request: "Which of them do you mean, and since when?",
        "not_answered": [*_done(task.actions), {"items": []}],
    }
    changes = [action for action in task.actions if action.name.startswith(_CHANGES)]
    if changes:
        scripts["only_words"] = _told(task)
        last = max(task.actions.index(action) for action in changes)
        scripts["last_step_missing"] = [*_done(task.actions[:last]), _told(task)]
    if len(task.actions) > 1:
        scripts["wrong_customer"] = [*_done(task.actions[1:]), _told(task)]
    if task.communicate:
        scripts["not_told"] = [*_done(task.actions), "It is done."]
        scripts["wrong_amount"] = [*_done(task.actions), f"It is 1{_values(task)}1."]
        scripts["guesses"] = [*_done(task.actions), _guesses(task)]
        scripts["told_in_a_call"] = [*_done(task.actions), _noise(task), "It is done."]
    return scripts


def _done(actions: list[Any]) -> list[Any]:
    return [
        f"Please {action.name.replace('_', ' ')}."
        if action.by == "user"
        else {"call": action.name, "arguments": action.arguments}
        for action in actions
    ]


def _told(task: Any, spelling: int = 0, *, said: bool = True) -> str:
    end = "You are being transferred." if any(each.name == "transfer_to_human" for each in task.actions) else "Goodbye."
    return f"That is settled: {_values(task, spelling)}. {end}" if said and task.communicate else f"Settled. {end}"


def _values(task: Any, spelling: int = 0) -> str:
    return ", ".join(spellings[spelling] for spellings in task.communicate)


def _guesses(task: Any) -> str:
    """What must be said among many things like it."""
    days = [f"2025-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 32)]
    return ", ".join([_values(task), *days, *(f"{number}.{number % 90 + 10}" for number in range(100))])


def _noise(task: Any) -> dict[str, Any]:
    return {"call": "find_title", "arguments": {"title": _values(task)}}
