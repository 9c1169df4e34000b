"""Find a calendar: start times that keep every event's rule and do not overlap.

A day has few events, so the search is exact. For every set of events it computes the earliest time by which all of them
can be over. If the search finds no calendar, none exists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ludus.environments.calendar.rules import Rule

Starts = dict[str, int]
NEVER = 1 << 31


def schedule(rules: Mapping[str, Rule]) -> Starts | None:
    """A start for every event, or None if no calendar keeps all rules. Takes 2^n steps for n events."""
    names, every = list(rules), list(enumerate(rules.values()))
    over: dict[int, float] = {0: 0}  # a set of events, as bits: the earliest time at which all can be over
    last: dict[int, tuple[int, int]] = {}  # a set of events: which one comes last, and its start
    for done in range(1 << len(names)):
        free = over.get(done)
        if free is None:
            continue
        for index, rule in every:
            if done >> index & 1:
                continue
            start, both = max(math.ceil(free), rule.earliest), done | 1 << index
            end = start + rule.duration
            if end <= rule.latest and end < over.get(both, NEVER):
                over[both], last[both] = end, (index, start)
    done = (1 << len(names)) - 1
    if done not in over:
        return None
    starts: Starts = {}
    while done:
        index, starts[names[index]] = last[done]
        done ^= 1 << index
    return starts


def rearranged(before: Mapping[str, int], rules: Mapping[str, Rule]) -> Starts | None:
    """A calendar that moves no event whose old start is still allowed; a new calendar if that is impossible."""
    unmoved = {
        name: Rule(rule.duration, before[name], before[name] + rule.duration)
        for name, rule in rules.items()
        if name in before and rule.broken_by(before[name], rule.duration) is None
    }
    if len(unmoved) == len(rules):
        return {name: before[name] for name in rules}
    return schedule({**rules, **unmoved}) or schedule(rules)
