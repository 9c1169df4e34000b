"""A conversation about a day's calendar; the model replies to the last message and shows the whole calendar.

The row lists the events so far and the rule for each. Any calendar that keeps all rules is right, and the text around
the calendar is not judged.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo, field_validator

import ludus
from ludus import Resources, Response, Verdict
from ludus.environments.calendar.reading import calendar_in
from ludus.environments.calendar.reference import passes
from ludus.environments.calendar.rules import Rule, overlap
from ludus.environments.calendar.times import minutes
from ludus.response import is_message, texts_of

Rules = dict[str, Rule]


class Calendar(Resources):
    """No tools and no state: only the reply's text is judged."""

    class Task(ludus.Task):
        exp_cal_state: dict[str, Any]

        @field_validator("exp_cal_state")
        @classmethod
        def _can_be_understood(cls, state: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
            if not (info.context or {}).get("compat"):
                rules_of(state)
            return state

    async def verify(self, task: Task, response: Response) -> Verdict:
        if self.config.compat:
            return Verdict(float(passes(task.exp_cal_state, response)))
        problem = problem_with(response, rules_of(task.exp_cal_state))
        return Verdict(float(problem is None), problem=problem)


def rules_of(state: dict[str, Any]) -> Rules:
    """The rule for each event, by its id. Raises a `ValueError` that names the event."""
    rules = {}
    for name, expected in state.items():
        if not isinstance(expected, dict):
            raise ValueError(f"event {name} must be an object")
        try:
            rules[name] = Rule.of(expected)
        except ValueError as error:
            raise ValueError(f"event {name}: {error}") from None
    return rules


def problem_with(response: Response, rules: Rules) -> str | None:
    """Why a reply is wrong, in words; None if it is right."""
    texts = [texts_of(item) for item in response.output if is_message(item)]
    if not any(map(str.strip, texts)):
        return "nothing was said"
    if any("<think>" in text or "</think>" in text for text in texts):
        return "the thinking is part of the reply"
    shown = next((calendar for text in reversed(texts) if (calendar := calendar_in(text)) is not None), None)
    if shown is None:
        return "no calendar is shown" if rules else None
    return problem_in(shown, rules)


def problem_in(entries: list[Any], rules: Rules) -> str | None:
    """Why a calendar is wrong (other events than expected, a broken rule, an overlap); None if it is right."""
    if len(entries) != len(rules):
        return f"{len(entries)} events are shown, not {len(rules)}"
    intervals = {}
    for entry in entries:
        name, start, duration = _read(entry)
        if name not in rules or name in intervals:
            return "an event is shown that is not asked for, or twice"
        if start is None or duration is None:
            return f"event {name} has no time that can be read"
        if broken := rules[name].broken_by(start, duration):
            return f"event {name} {broken}"
        intervals[name] = (start, start + duration)
    return "two events overlap" if overlap(intervals.values()) else None


def _read(entry: Any) -> tuple[str | None, int | None, float | None]:
    """An entry's id, start and duration; None for each value that cannot be read."""
    if not isinstance(entry, dict):
        return None, None, None
    name, start, duration = entry.get("event_id"), entry.get("start_time"), entry.get("duration")
    try:
        began = minutes(start) if isinstance(start, str) else None
    except ValueError:
        began = None
    return (
        str(name) if isinstance(name, (int, str)) else None,
        began,
        duration if isinstance(duration, (int, float)) and not isinstance(duration, bool) else None,
    )
