"""Endless rows: conversations about a calendar, with the rules that every event has by the last message.

A whole day of events and times is drawn first, and each constraint is drawn so that this day keeps it. Every row thus
has a solution, wherever the conversation is cut. The same seed and settings give the same rows in the same order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from ludus.environments.calendar.phrases import ADDING, CHATTING, CONSTRAINING, SHOWING, SYSTEM, THEMES
from ludus.environments.calendar.rules import Rule
from ludus.environments.calendar.scheduling import Starts, rearranged
from ludus.environments.calendar.times import DAY, clock, minutes, spoken
from ludus.errors import UserError

Row = dict[str, Any]

#: Durations and gaps are multiples of this many minutes.
STEP = 15
SHORTEST, LONGEST = 30, 90
MOST_EVENTS = 10

#: The probability that a constraint, and that a remark, follows a new event.
CONSTRAINT_CHANCE, REMARK_CHANCE = 0.8, 0.35


@dataclass(frozen=True)
class Event:
    """An event of the day behind a row. `start` is its drawn start time, which the row does not show."""

    id: int
    name: str
    duration: int
    start: int
    constraint: str

    def expected(self, opens: int, closes: int, constrained: bool) -> Row:
        """The event's entry in `exp_cal_state`."""
        constraint = self.constraint if constrained else None
        window = {"min_time": clock(opens), "max_time": clock(closes)}
        return {"event_id": self.id, "duration": self.duration, "constraint": constraint, **window}


@dataclass
class Turn:
    """A user message and the assistant's reply, with the expected state and a right calendar after the message."""

    said: str
    reply: str
    state: dict[str, Row]
    calendar: Starts
    #: Whether a row may end with this message: it makes the calendar change, or it is a remark.
    can_end: bool


def stream(seed: int, *, events: int = 7, opens: str = "10:00", closes: str = "16:00") -> Iterator[Row]:
    """Endless rows about days with at most `events` events between `opens` and `closes`.

    stream(7)
    stream(7, events=4, opens="9:00", closes="13:00")
    """
    first, last = _window(opens, closes)
    fits = min(MOST_EVENTS, (last - first) // SHORTEST)
    if not isinstance(events, int) or not 1 <= events <= fits:
        raise UserError(
            f"data.events={events!r:.40} must be a whole number from 1 to {fits} between {opens} and {closes}"
        )
    return (row(random.Random(f"calendar/{seed}/{number}"), events, first, last) for number in count())


def row(rng: random.Random, events: int, opens: int, closes: int) -> Row:
    """A conversation that ends with a user message for which `Turn.can_end` holds."""
    names, remarks = THEMES[rng.choice(list(THEMES))]
    day = draw_day(rng, rng.sample(names, events), opens, closes)
    turns = list(conversation(rng, day, list(remarks), opens, closes))
    can_end = [number for number, turn in enumerate(turns) if turn.can_end]
    last = rng.choice(can_end[len(can_end) // 3 :])
    named = {str(event.id): event for event in day}
    said = [{"role": "system", "content": SYSTEM.format(opens=clock(opens), closes=clock(closes))}]
    for turn in turns[:last]:
        said.append({"role": "user", "content": turn.said})
        said.append({"role": "assistant", "content": turn.reply + json.dumps(entries(turn.calendar, named))})
    end = turns[last]
    said.append({"role": "user", "content": end.said})
    return {
        "responses_create_params": {"input": said},
        "exp_cal_state": end.state,
        "solution": entries(end.calendar, named),
    }


def draw_day(rng: random.Random, names: list[str], opens: int, closes: int) -> list[Event]:
    """A day at least half full; each event has a constraint that its drawn time keeps."""
    lengths = [SHORTEST] * len(names)
    spare = (closes - opens - sum(lengths)) // STEP
    for _ in range(rng.randint(spare // 2, spare)):
        growing = [index for index, length in enumerate(lengths) if length < LONGEST]
        if not growing:
            break
        lengths[rng.choice(growing)] += STEP
    gaps = [0] * len(names)
    for _ in range((closes - opens - sum(lengths)) // STEP):
        before = rng.randint(0, len(names))  # the last value stands for the gap after all events, which is not stored
        if before < len(names):
            gaps[before] += STEP
    day, time = [], opens
    for name, length, gap in zip(names, lengths, gaps, strict=True):
        time += gap
        day.append(Event(0, name, length, time, draw_constraint(rng, time, time + length, opens, closes)))
        time += length
    rng.shuffle(day)
    return [replace(event, id=number) for number, event in enumerate(day)]


def draw_constraint(rng: random.Random, start: int, end: int, opens: int, closes: int) -> str:
    """A random constraint that an event from `start` to `end` keeps, with some room around it."""
    earlier, later = (rng.randint(1, 6) * STEP for _ in range(2))
    first, last = spoken(max(opens, start - earlier)), spoken(min(closes, end + later))
    kinds = {"before": f"before {last}", "after": f"after {first}", "between": f"between {first} and {last}"}
    return (kinds | {"at": f"at {spoken(start)}"})[rng.choice(list(CONSTRAINING))]


def conversation(rng: random.Random, day: list[Event], remarks: list[str], opens: int, closes: int) -> Iterator[Turn]:
    """Turns that add every event, state every constraint at some point, and mix in remarks."""
    state: dict[str, Row] = {}
    calendar: Starts = {}
    unstated: list[Event] = []  # added events whose constraint the user has not stated yet

    def turn(said: str, replies: list[str]) -> Turn:
        nonlocal calendar
        rules = {name: Rule.of(expected) for name, expected in state.items()}
        after = rearranged(calendar, rules)
        assert after is not None, "the drawn day keeps all rules"
        can_end, calendar = after != calendar or replies is CHATTING, after
        return Turn(said, rng.choice(replies), dict(state), after, can_end)

    def state_constraint() -> Turn:
        event = unstated.pop(rng.randrange(len(unstated)))
        state[str(event.id)] = event.expected(opens, closes, constrained=True)
        return turn(constraint_said(rng, event), SHOWING)

    for event in day:
        state[str(event.id)] = event.expected(opens, closes, constrained=False)
        unstated.append(event)
        yield turn(rng.choice(ADDING).format(**vars(event)), SHOWING)
        if rng.random() < CONSTRAINT_CHANCE:
            yield state_constraint()
        if remarks and rng.random() < REMARK_CHANCE:
            yield turn(remarks.pop(rng.randrange(len(remarks))), CHATTING)
    while unstated:
        yield state_constraint()


def constraint_said(rng: random.Random, event: Event) -> str:
    """A constraint in the user's words."""
    kind, _, times = event.constraint.partition(" ")
    blank = rng.choice(["", " "])
    first, *rest = (spoken(minutes(time), blank) for time in times.split(" and "))
    return rng.choice(CONSTRAINING[kind]).format(name=event.name, id=event.id, first=first, last="".join(rest))


def entries(calendar: Starts, named: dict[str, Event]) -> list[Row]:
    """A calendar as a reply shows it, in order of start time."""
    return [
        {"event_id": event.id, "event_name": event.name, "start_time": clock(start), "duration": event.duration}
        for start, event in sorted((start, named[name]) for name, start in calendar.items())
    ]


def _window(opens: str, closes: str) -> tuple[int, int]:
    try:
        first, last = minutes(opens), minutes(closes)
    except (ValueError, AttributeError) as error:
        raise UserError(f"data.opens={opens!r:.40}, data.closes={closes!r:.40}: {error}", "Write 10:00") from None
    if last >= DAY or last - first < SHORTEST:
        raise UserError(
            f"data.closes={closes} must be {SHORTEST} minutes or more after data.opens={opens}, on the same day"
        )
    return first, last
