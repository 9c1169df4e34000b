"""How qualification solves a row: with the row's `solution`, or else by searching for one."""

from __future__ import annotations

import json
from typing import Any

from ludus.environments.calendar.reading import calendar_in
from ludus.environments.calendar.resources import rules_of
from ludus.environments.calendar.scheduling import schedule
from ludus.environments.calendar.times import clock, minutes, spoken
from ludus.response import texts_of

Entries = list[dict[str, Any]]

expected_exploits = {
    "copy": (0.5, "where the user only chats, the calendar of the previous reply is still right"),
}


def oracle(task: Any) -> str | None:
    """The calendar and nothing else."""
    solved = _solved(task)
    return None if solved is None else json.dumps(solved)


def exploits(task: Any) -> dict[str, Any]:
    """The previous calendars again, no events, and every event at its earliest start or at every time."""
    shown = [calendar for item in task.input if (calendar := calendar_in(texts_of(item))) is not None]
    rules = rules_of(task.exp_cal_state)
    early = [_entry(name, rule.earliest, rule.duration) for name, rule in rules.items()]
    hours = [_entry(name, time, rule.duration) for name, rule in rules.items() for time in range(600, 960, 15)]
    return {
        "copy/last": json.dumps(shown[-1]) if shown else "",
        "copy/all": "\n".join(map(json.dumps, shown)),
        "no_events/list": "[]",
        "no_events/object": "[{}]",
        "at_once/early": json.dumps(early) if len(early) > 1 else "",
        "at_once/everywhere": json.dumps(hours),
    }


def preserving(task: Any) -> dict[str, Any]:
    """The same calendar, written in other ways."""
    solved = _solved(task)
    if solved is None:
        return {}
    plain = json.dumps(solved)
    shifted = [{**entry, "start_time": spoken(minutes(entry["start_time"]))} for entry in solved]
    capital = [{**entry, "start_time": entry["start_time"].upper()} for entry in shifted]
    return {
        "after_prose": f"Certainly! Options [a] and [b] were both possible. Here it is:\n\n{plain}\n\nAnything else?",
        "fenced": f"```json\n{json.dumps(solved, indent=2)}\n```",
        "in_an_object": json.dumps({"calendar": solved}),
        "other_order": json.dumps(solved[::-1]),
        "twelve_hours": json.dumps(shifted),
        "capital_halves": json.dumps(capital),
        "text_ids": json.dumps([{**entry, "event_id": str(entry["event_id"])} for entry in solved]),
        "float_durations": json.dumps([{**entry, "duration": float(entry["duration"])} for entry in solved]),
        "brackets_in_names": json.dumps([{**entry, "event_name": "Tea [with ]milk"} for entry in solved]),
        "more_fields": json.dumps([{**entry, "guests": ["Ann", "Bo"]} for entry in solved]),
        "another_list_after": f"{plain}\nBefore, it was [{{}}].",
    }


def breaking(task: Any) -> dict[str, Any]:
    """Calendars that look right and are wrong, and the right one in a place or format that does not count."""
    solved = _solved(task)
    if solved is None:
        return {}
    plain, (first, *others) = json.dumps(solved), solved
    start, length = minutes(first["start_time"]), first["duration"]
    wrong: dict[str, Entries] = {
        "one_missing": others,
        "one_twice": [*solved, first],
        "one_more": [*solved, {**first, "event_id": 99, "start_time": "21:00"}],
        "too_short": [{**first, "duration": length - 5}, *others],
        "duration_in_words": [{**first, "duration": f"{length} minutes"}, *others],
        "day_before": [{**first, "start_time": "00:00"}, *others],
        "next_day": [{**first, "start_time": clock(start + 24 * 60)}, *others],
        "other_id": [{**first, "event_id": f"0{first['event_id']}"}, *others],
        "minute_over_59": [{**first, "start_time": f"{start // 60 - 1}:{start % 60 + 60}"}, *others],
        "seconds": [{**first, "start_time": f"{first['start_time']}:00"}, *others],
        "no_times": [{"event_id": entry["event_id"], "duration": entry["duration"]} for entry in solved],
    }
    if others:
        wrong["same_time"] = [{**entry, "start_time": first["start_time"]} for entry in solved]
    texts = {
        "thinking": f"<think>Let me see.</think>{plain}",
        "end_of_thinking": f"Let me see.</think>{plain}",
        "single_quotes": str(solved),
        "unclosed": plain[:-1],
        "wrong_first": f"{json.dumps(others)}\n{plain}" if others else "[{}]",
        "in_reasoning": [{"reasoning": plain, "text": "It is all in your calendar."}],
    }
    return {name: json.dumps(entries) for name, entries in wrong.items()} | texts


def _solved(task: Any) -> Entries | None:
    solution = getattr(task, "solution", None)
    if solution is not None:
        return list(solution)
    rules = rules_of(task.exp_cal_state)
    starts = schedule(rules) or {}
    return [_entry(name, start, rules[name].duration) for name, start in starts.items()] or None


def _entry(name: str, start: int, duration: float) -> dict[str, Any]:
    return {"event_id": int(name), "event_name": f"Event {name}", "start_time": clock(start), "duration": duration}
