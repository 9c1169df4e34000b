"""A calendar is right if it holds exactly the expected events, keeps each rule, and has no overlap."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Failure, Outcome, Response, ScriptedModel, Verdict
from ludus.environments.calendar.reading import calendar_in
from ludus.environments.calendar.reference import passes
from ludus.environments.calendar.resources import Calendar, problem_in, problem_with, rules_of
from ludus.environments.calendar.rules import Rule, overlap
from ludus.environments.calendar.scheduling import rearranged, schedule
from ludus.environments.calendar.times import clock, minutes, spoken
from ludus.response import message, reasoning
from ludus.testing import disagreements, judge, shared_rows

NAME = "calendar"
Entry = dict[str, Any]


def wanted(duration: Any, constraint: Any = None, opens: str = "10:00", closes: str = "16:00") -> Entry:
    return {"event_id": 0, "duration": duration, "constraint": constraint, "min_time": opens, "max_time": closes}


def row(**events: Entry) -> dict[str, Any]:
    """A row whose events are named by letter: `a` is event 1, `b` is event 2."""
    state = {str(ord(letter) - ord("a") + 1): event for letter, event in events.items()}
    return {"responses_create_params": {"input": "What does my day look like?"}, "exp_cal_state": state}


def entry(id: Any, start: Any, duration: Any, name: str = "Tea") -> Entry:
    return {"event_id": id, "event_name": name, "start_time": start, "duration": duration}


ONE = row(a=wanted(60))
TWO = row(a=wanted(60, "before 12pm"), b=wanted(30, "at 10:30am"))
RIGHT = [entry(1, "11:00", 60), entry(2, "10:30", 30)]


async def reward(answer: Any, asked: dict[str, Any] = ONE, **settings: Any) -> float:
    said = answer if isinstance(answer, (str, Response)) else json.dumps(answer)
    verdict = await judge(NAME, asked, said, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict.reward


async def problem(answer: Any, asked: dict[str, Any] = TWO) -> Any:
    verdict = await judge(NAME, asked, json.dumps(answer))
    assert isinstance(verdict, Verdict)
    return verdict.values["problem"]


async def both(answer: Any, asked: dict[str, Any] = ONE) -> tuple[float, float]:
    """The reward by default, and the reward with compat."""
    return await reward(answer, asked), await reward(answer, asked, compat=True)


def test_only_a_calendar_that_keeps_all_rules_earns_the_reward() -> None:
    for said, earned in [(json.dumps(RIGHT), 1.0), (json.dumps(RIGHT[:1]), 0.0), ("All done!", 0.0)]:
        rollout = ludus.collect(NAME, model=ScriptedModel([said]), input=[TWO]).rollouts[0]
        assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, earned)


async def test_the_verdict_says_what_is_wrong() -> None:
    assert await problem(RIGHT) is None
    assert await problem([]) == "no calendar is shown"
    assert await problem(RIGHT[:1]) == "1 events are shown, not 2"
    assert await problem([entry(3, "11:00", 60), RIGHT[1]]) == "an event is shown that is not asked for, or twice"
    assert await problem([entry(1, "11", 60), RIGHT[1]]) == "event 1 has no time that can be read"
    assert await problem([entry(1, "11:00", 61), RIGHT[1]]) == "event 1 has the wrong duration"
    assert await problem([entry(1, "9:00", 60), RIGHT[1]]) == "event 1 starts too early"
    assert await problem([entry(1, "11:01", 60), RIGHT[1]]) == "event 1 ends too late"
    assert await problem([entry(1, "10:45", 60), RIGHT[1]]) == "two events overlap"


@pytest.mark.parametrize(
    ("constraint", "starts", "breaks"),
    [
        (None, ["10:00", "12:34", "15:00"], ["9:59", "15:01"]),
        ("", ["10:00", "15:00"], ["15:01"]),
        ("before 2pm", ["10:00", "13:00"], ["13:01"]),
        ("after 14:30", ["14:30", "15:00"], ["14:29"]),
        ("between 11am and 12:30pm", ["11:00", "11:30"], ["10:59", "11:31"]),
        ("at 11:15 am", ["11:15"], ["11:14", "11:16"]),
        ("Before 2 PM", ["13:00"], ["13:01"]),
        ("before 8pm", ["15:00"], ["15:01"]),
    ],
)
async def test_a_constraint_holds_to_the_minute_and_never_widens_the_day(
    constraint: Any, starts: list[str], breaks: list[str]
) -> None:
    asked = row(a=wanted(60, constraint))
    assert [await reward([entry(1, start, 60)], asked) for start in starts] == [1.0] * len(starts)
    assert [await reward([entry(1, start, 60)], asked) for start in breaks] == [0.0] * len(breaks)


async def test_one_event_may_begin_when_another_ends() -> None:
    asked = row(a=wanted(60), b=wanted(60))
    assert await reward([entry(1, "10:00", 60), entry(2, "11:00", 60)], asked) == 1.0
    assert await reward([entry(1, "10:00", 60), entry(2, "10:59", 60)], asked) == 0.0


@pytest.mark.parametrize("compat", [False, True])
async def test_an_event_may_take_no_time_or_part_of_a_minute(compat: bool) -> None:
    asked = row(a=wanted(0, "at 11am"), b=wanted(30.5), c=wanted(60.0))

    async def earned(first: str, second: str, third: str, durations: tuple[Any, ...] = (0, 30.5, 60)) -> float:
        shown = [entry(n, at, long) for n, at, long in zip((1, 2, 3), (first, second, third), durations, strict=True)]
        return await reward(shown, asked, compat=compat)

    assert await earned("11:00", "10:00", "11:00") == 1.0
    assert await earned("11:00", "15:29", "11:00") == 1.0
    assert await earned("11:00", "15:30", "11:00") == 0.0, "it ends half a minute after four"
    assert await earned("11:00", "10:30", "11:00") == 0.0, "two events overlap"
    assert await earned("11:00", "10:00", "10:45") == 0.0, "an event without duration lies inside another"
    assert await earned("11:01", "10:00", "12:00") == 0.0, "it must be at eleven"
    assert await earned("11:00", "10:00", "11:00", (1, 30.5, 60)) == 0.0
    assert await earned("11:00", "10:00", "11:00", (0, 30, 60)) == 0.0
    assert await earned("11:00", "10:00", "11:00", (0.0, 30.5, 60.0)) == 1.0


slots = st.tuples(st.integers(600, 960), st.sampled_from([0, 0.5, 15, 30, 30.5, 45.0, 60]))


@given(st.lists(slots, min_size=1, max_size=4), st.lists(slots, min_size=1, max_size=4))
async def test_durations_of_every_kind_are_judged_as_in_the_reference(asked: Any, shown: Any) -> None:
    state = {str(n): wanted(long) for n, (_, long) in enumerate(asked, 1)}
    entries = [entry(n, f"{start // 60}:{start % 60:02d}", long) for n, (start, long) in enumerate(shown, 1)]
    for (_, long), shown_entry in zip(asked, entries, strict=False):
        shown_entry["duration"] = long
    response = Response.of(message(json.dumps(entries)))
    assert (problem_with(response, rules_of(state)) is None) == passes(state, response)


@pytest.mark.parametrize(
    "text",
    [
        "Here you are:\n```json\n{}\n```\nAnything else?",
        '{{"calendar": {}}}',
        "Options [a] or [b], {{c}}: {}",
        "{} and not [{{}}]",
        'It begins with [{{"event_id": ... no, again: {}',
    ],
)
async def test_the_first_list_of_objects_is_the_calendar_whatever_text_surrounds_it(text: str) -> None:
    said = text.replace("{}", json.dumps([entry(1, "10:00", 60)]), 1).replace("{{", "{").replace("}}", "}")
    assert await reward(said) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "[]",
        "[{}]",
        "[1]",
        "[[], []]",
        '[{"event_id": 1, "start_time": "10:00", "duration": 60}',
        "[{'event_id': 1, 'start_time': '10:00', 'duration': 60}]",
        '[{"event_id": 1, "start_time": "10:00", "duration": 60},]',
        '[{"event_id": 1, "start_time": "10:00", "duration": NaN}]',
        '[{"event_id": 1, "start_time": "10:00", "duration": "60"}]',
        '[{"event_id": 1, "start_time": "10:00", "duration": [60]}]',
        '[{"event_id": 1, "start_time": 600, "duration": 60}]',
        '[{"event_id": 1, "start_time": null, "duration": 60}]',
        '[{"event_id": [1], "start_time": "10:00", "duration": 60}]',
        '[{"start_time": "10:00", "duration": 60}]',
        '[{"event_id": 1, "duration": 60}]',
        '[{"event_id": 1, "start_time": "10:00"}]',
        '[{"event_id": 1, "start_time": "10:00", "duration": 60}, 5]',
        '[{"event_id": 1, "start_time": "10:00", "duration": ' + "9" * 5000 + "}]",
    ],
)
async def test_a_reply_without_a_valid_calendar_earns_nothing(text: str) -> None:
    assert await both(text) == (0.0, 0.0)


async def test_the_first_list_counts_even_if_a_right_one_follows() -> None:
    right = json.dumps([entry(1, "10:00", 60)])
    assert await both(f"[{{}}] {right}") == (0.0, 0.0)
    assert await both(f"[{{oops}}] {right}") == (0.0, 0.0)
    assert await both(json.dumps([entry(1, "9:00", 60)]) + right) == (0.0, 0.0)


async def test_an_event_that_is_shown_twice_is_refused_except_in_compat() -> None:
    once = entry(1, "10:00", 60)
    assert await both([once, once]) == (0.0, 1.0)
    assert await both([entry(1, "14:00", 60), once]) == (0.0, 1.0)
    assert await both([once, entry(1, "10:30", 60)]) == (0.0, 0.0)
    assert await both([once, {**once, "duration": 60.0}]) == (0.0, 1.0)


async def test_brackets_inside_a_value_are_allowed_except_in_compat() -> None:
    assert await both([entry(1, "10:00", 60, "Tea [with milk]")]) == (1.0, 0.0)
    assert await both([{**entry(1, "10:00", 60), "guests": ["Ann"]}]) == (1.0, 0.0)


async def test_upper_case_am_and_pm_are_read_except_in_compat() -> None:
    assert await both([entry(1, "1:30PM", 60)]) == (1.0, 0.0)
    assert await both([entry(1, "1:30 pm", 60)]) == (1.0, 1.0)


@pytest.mark.parametrize("start", ["10:75", "9:60", "13pm", "1_0:00", "+10:00", "\u0661\u0660:\u0660\u0660", "10:0"])
async def test_a_time_that_no_clock_shows_is_refused_except_in_compat(start: str) -> None:
    asked = row(a=wanted(60, opens="00:00", closes="24:00"))
    assert await reward([entry(1, start, 60)], asked) == 0.0
    late = row(a=wanted(60, opens="00:00", closes="48:00"))
    assert await reward([entry(1, start, 60)], late, compat=True) == 1.0


@pytest.mark.parametrize("start", ["10", "10:00:00", "ten", "", "10.00", "24:01", "10:00x", "x10am", "am"])
async def test_a_text_that_is_not_a_time_is_refused_also_in_compat(start: str) -> None:
    assert await both([entry(1, start, 60)], row(a=wanted(60, opens="00:00", closes="23:59"))) == (0.0, 0.0)


@pytest.mark.parametrize("constraint", ["around noon", "before noon", "at 10am or 11am", "between 10am", "before", 5])
async def test_an_unknown_constraint_makes_a_bad_row_except_in_compat(
    constraint: Any,
) -> None:
    asked = row(a=wanted(60, constraint))
    verdict = await judge(NAME, asked, json.dumps([entry(1, "10:00", 60)]))
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"
    unknown_kind = constraint == "around noon"
    assert await reward([entry(1, "10:00", 60)], asked, compat=True) == float(unknown_kind)


@pytest.mark.parametrize(
    "change",
    [{"duration": -1}, {"duration": "60"}, {"duration": True}, {"min_time": None}, {"max_time": "late"}],
)
async def test_a_bad_row_is_refused_before_anything_runs(change: dict[str, Any]) -> None:
    asked = row(a={**wanted(60), **change})
    with pytest.raises(ludus.UserError, match="event 1: "):
        ludus.collect(NAME, model=ScriptedModel(["Hm."]), input=[asked])


@pytest.mark.parametrize("state", [None, [], {"1": 5}, {"1": []}])
async def test_an_exp_cal_state_that_is_not_an_object_of_events_is_refused(state: Any) -> None:
    verdict = await judge(NAME, {**ONE, "exp_cal_state": state}, "[]")
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


async def test_without_expected_events_showing_events_is_wrong_except_in_compat() -> None:
    assert await both("Good morning! []", row()) == (1.0, 1.0)
    assert await both([entry(1, "10:00", 60)], row()) == (0.0, 1.0)
    assert await both(" ", row()) == (0.0, 1.0)
    assert await both("", row()) == (0.0, 0.0)


async def test_a_think_tag_in_the_reply_earns_nothing_and_compat_ignores_a_lone_closing_tag() -> None:
    right = json.dumps([entry(1, "10:00", 60)])
    assert await both(f"<think>Hm.</think>{right}") == (0.0, 0.0)
    assert await both(f"Hm.</think>{right}") == (0.0, 1.0)
    assert await both(f"<thinking>{right}") == (1.0, 1.0)


async def test_only_messages_are_judged_and_compat_also_judges_reasoning() -> None:
    right = json.dumps([entry(1, "10:00", 60)])
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": right}]}
    assert await both(Response.of(message("Let me see."), thought)) == (0.0, 1.0)
    assert await both(Response.of(message(right), reasoning("Done."))) == (1.0, 0.0)
    assert await both(Response.of(reasoning(right))) == (0.0, 0.0)
    assert await both(Response({})) == (0.0, 0.0)


async def test_the_last_message_with_a_calendar_counts_except_in_compat() -> None:
    right, wrong = message(json.dumps([entry(1, "10:00", 60)])), message(json.dumps([entry(1, "9:00", 60)]))
    assert await both(Response.of(wrong, right)) == (1.0, 1.0)
    assert await both(Response.of(right, wrong)) == (0.0, 0.0)
    assert await both(Response.of(right, message("Done!"))) == (1.0, 0.0)
    parts = {**right, "content": [{"type": "output_text", "text": "Here:"}, *right["content"]]}
    assert await both(Response.of(parts)) == (1.0, 0.0)


async def test_a_refusal_earns_nothing_where_the_reference_fails() -> None:
    refused = {**message(""), "content": [{"type": "refusal", "refusal": "I will not."}]}
    assert await both(Response.of(refused)) == (0.0, 0.0)


async def test_an_event_id_is_the_exact_number_or_its_text() -> None:
    asked = row(a=wanted(60))
    assert [await reward([entry(id, "10:00", 60)], asked) for id in (1, "1")] == [1.0, 1.0]
    assert [await reward([entry(id, "10:00", 60)], asked) for id in (1.0, "01", " 1", True, None, 2)] == [0.0] * 6


async def test_true_is_not_a_duration_of_one_minute_except_in_compat() -> None:
    assert await both([entry(1, "10:00", True)], row(a=wanted(1))) == (0.0, 1.0)
    assert await both([entry(1, "10:00", 60.0)]) == (1.0, 1.0)


async def test_hostile_text_earns_nothing_and_is_judged_in_linear_time() -> None:
    many = ",".join(json.dumps(entry(1, "10:00", -number)) for number in range(20_000))
    hostile = [
        "[" * 200_000,
        "[{" * 100_000,
        '[{"a":' * 50_000,
        '[{"[{\\"' * 50_000,
        '[{"a": "' + "[{x" * 100_000,
        "[" + "{}" * 100_000,
        "[{" + " " * 200_000,
        f"[{many}]",
        json.dumps([entry(1, "10:00" + " " * 200_000 + "x", 60)]),
    ]
    for text in hostile:  # quadratic code would take minutes here
        assert await both(text) == (0.0, 0.0)


times = st.integers(0, 24 * 60 - 1)


@given(times)
def test_a_written_time_reads_back_as_the_same_minute(time: int) -> None:
    assert minutes(clock(time)) == minutes(spoken(time)) == minutes(spoken(time, " ").upper()) == time


@given(st.text() | st.text("0123456789:apmAPM \u202f", max_size=9))
def test_any_text_is_a_time_of_the_day_or_a_value_error(text: str) -> None:
    try:
        assert 0 <= minutes(text) <= 24 * 60
    except ValueError:
        pass


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(-3, 5)), max_size=7))
def test_overlap_agrees_with_comparing_every_pair(drawn: list[tuple[int, int]]) -> None:
    intervals = [(float(start), float(start + length)) for start, length in drawn]
    pairs = [(a, b) for n, a in enumerate(intervals) for b in intervals[:n]]
    assert overlap(intervals) == any(a[0] < b[1] and b[0] < a[1] for a, b in pairs)


@given(st.text('[]{}":,ab1 \\', max_size=40), st.text('[]{}":,ab1 \\', max_size=40))
def test_any_text_is_a_list_of_entries_or_none(before: str, after: str) -> None:
    entries = calendar_in(f"{before}[{{}}]{after}")
    assert entries is None or (isinstance(entries, list) and isinstance(entries[0], dict))


rules = st.builds(
    lambda duration, earliest, room: Rule(duration, earliest, earliest + duration + room),
    st.sampled_from([0, 1, 1.5, 2, 3, 4, 5]),
    st.integers(0, 12),
    st.integers(-1, 8),
)


def brute_force(wanted: list[Rule], free: float = 0) -> bool:
    if not wanted:
        return True
    return any(
        brute_force(wanted[:n] + wanted[n + 1 :], start + rule.duration)
        for n, rule in enumerate(wanted)
        if (start := max(math.ceil(free), rule.earliest)) + rule.duration <= rule.latest
    )


@given(st.lists(rules, max_size=5))
def test_a_schedule_is_found_exactly_if_one_exists_and_keeps_every_rule(drawn: list[Rule]) -> None:
    named = {str(number): rule for number, rule in enumerate(drawn)}
    starts = schedule(named)
    assert (starts is not None) == brute_force(drawn)
    if starts is not None:
        shown = [
            {"event_id": name, "start_time": clock(at), "duration": named[name].duration} for name, at in starts.items()
        ]
        assert problem_in(shown, named) is None


def test_rearranging_moves_an_event_only_if_it_must() -> None:
    free, early = Rule(60, 600, 960), Rule(60, 600, 690)
    assert rearranged({"a": 700}, {"a": free}) == {"a": 700}
    assert rearranged({"a": 700}, {"a": free, "b": free}) == {"a": 700, "b": 600}
    assert rearranged({"a": 610}, {"a": free, "b": early}) == {"a": 660, "b": 600}
    assert rearranged({"a": 610}, {"a": early, "b": early}) is None


def test_public_rows_load_and_have_a_solution() -> None:
    rows = [Calendar.Task.model_validate(row) for row in shared_rows(NAME)]
    assert rows
    assert all(schedule(rules_of(row.exp_cal_state)) for row in rows)


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_also_in_its_mistakes() -> None:
    assert await disagreements(NAME, compat=True) == []
