"""Days without end: conversations about a calendar, with what is asked of every event by the time of the last message.

A day is drawn first, events and times and all, and wishes are drawn around it. So there is always a calendar that keeps
them all, however far the conversation has come. The same seed and settings give the same rows in the same order.
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

#: Lengths are drawn, and times rounded, in steps of this many minutes.
STEP = 15
SHORTEST, LONGEST = 30, 90
MOST_EVENTS = 10

#: How likely a wish and a remark follow a new event.
WISH, REMARK = 0.8, 0.35


@dataclass(frozen=True)
class Event:
    """An event of the day that is behind a row. `start` is where it was drawn, and nobody is told."""

    id: int
    name: str
    duration: int
    start: int
    constraint: str

    def expected(self, opens: int, closes: int, constrained: bool) -> Row:
        """What a verifier has to know about it."""
        wish = self.constraint if constrained else None
        window = {"min_time": clock(opens), "max_time": clock(closes)}
        return {"event_id": self.id, "duration": self.duration, "constraint": wish, **window}


@dataclass
class Turn:
    """A message of the user, what holds after it, and a calendar that keeps it, with what the assistant says to it."""

    said: str
    reply: str
    state: dict[str, Row]
    calendar: Starts
    #: Whether there is something to do: the calendar before does not keep what holds now, or nothing was asked.
    telling: bool


def stream(seed: int, *, events: int = 7, opens: str = "10:00", closes: str = "16:00") -> Iterator[Row]:
    """Rows for ever, about days with at most so many events between two times.

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
    """A conversation that is cut off after a message of the user which gives the assistant something to do."""
    names, remarks = THEMES[rng.choice(list(THEMES))]
    day = draw_day(rng, rng.sample(names, events), opens, closes)
    turns = list(conversation(rng, day, list(remarks), opens, closes))
    telling = [number for number, turn in enumerate(turns) if turn.telling]
    last = rng.choice(telling[len(telling) // 3 :])
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
    """A day that is at least half full, with a wish for each event that fits where the event lies."""
    lengths = [SHORTEST] * len(names)
    spare = (closes - opens - sum(lengths)) // STEP
    for _ in range(rng.randint(spare // 2, spare)):
        growing = [index for index, length in enumerate(lengths) if length < LONGEST]
        if not growing:
            break
        lengths[rng.choice(growing)] += STEP
    gaps = [0] * len(names)
    for _ in range((closes - opens - sum(lengths)) // STEP):
        before = rng.randint(0, len(names))  # the gap after the last event is nobody's
        if before < len(names):
            gaps[before] += STEP
    day, time = [], opens
    for name, length, gap in zip(names, lengths, gaps, strict=True):
        time += gap
        day.append(Event(0, name, length, time, draw_wish(rng, time, time + length, opens, closes)))
        time += length
    rng.shuffle(day)
    return [replace(event, id=number) for number, event in enumerate(day)]


def draw_wish(rng: random.Random, start: int, end: int, opens: int, closes: int) -> str:
    """A constraint that an event from `start` to `end` keeps, with some room around it."""
    earlier, later = (rng.randint(1, 6) * STEP for _ in range(2))
    first, last = spoken(max(opens, start - earlier)), spoken(min(closes, end + later))
    kinds = {"before": f"before {last}", "after": f"after {first}", "between": f"between {first} and {last}"}
    return (kinds | {"at": f"at {spoken(start)}"})[rng.choice(list(CONSTRAINING))]


def conversation(rng: random.Random, day: list[Event], remarks: list[str], opens: int, closes: int) -> Iterator[Turn]:
    """Every event is added, every wish is made sooner or later, and remarks come in between."""
    state: dict[str, Row] = {}
    calendar: Starts = {}
    silent: list[Event] = []  # added, with a wish that is not made yet

    def turn(said: str, replies: list[str]) -> Turn:
        nonlocal calendar
        rules = {name: Rule.of(expected) for name, expected in state.items()}
        after = rearranged(calendar, rules)
        assert after is not None, "the day as it was drawn is one"
        telling, calendar = after != calendar or replies is CHATTING, after
        return Turn(said, rng.choice(replies), dict(state), after, telling)

    def wish() -> Turn:
        event = silent.pop(rng.randrange(len(silent)))
        state[str(event.id)] = event.expected(opens, closes, constrained=True)
        return turn(wish_said(rng, event), SHOWING)

    for event in day:
        state[str(event.id)] = event.expected(opens, closes, constrained=False)
        silent.append(event)
        yield turn(rng.choice(ADDING).format(**vars(event)), SHOWING)
        if rng.random() < WISH:
            yield wish()
        if remarks and rng.random() < REMARK:
            yield turn(remarks.pop(rng.randrange(len(remarks))), CHATTING)
    while silent:
        yield wish()


def wish_said(rng: random.Random, event: Event) -> str:
    """A constraint as somebody would say it."""
    kind, _, times = event.constraint.partition(" ")
    blank = rng.choice(["", " "])
    first, *rest = (spoken(minutes(time), blank) for time in times.split(" and "))
    return rng.choice(CONSTRAINING[kind]).format(name=event.name, id=event.id, first=first, last="".join(rest))


def entries(calendar: Starts, named: dict[str, Event]) -> list[Row]:
    """A calendar as it is shown, in the order of the day."""
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
