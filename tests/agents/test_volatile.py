"""What counts as volatile text of a program, and what never does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.agents.harness.declaration import declared, read_declaration
from ludus.agents.volatile import VolatileText
from ludus.response import Item, function_call, function_call_output, message, reasoning


def output(text: Any) -> Item:
    return function_call_output("c", text)


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def is_alike(one: Item, other: Item, *patterns: str) -> bool:
    volatile = VolatileText(patterns)
    return volatile.content(one) == volatile.content(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The time is 2026-11-18T09:58:02.716897", "The time is 2026-11-19T00:00:00"),
        ("at 2026-11-18 09:58:02,716 +0100: ok", "at 2026-11-18 09:58:03: ok"),
        ("-rw-r--r-- 1 me me 3 Nov 18 09:58 a.txt", "-rw-r--r-- 1 me me 3 Nov 19 10:01 a.txt"),
        ("Wed Nov 18 09:53:30 UTC 2026", "Thu Nov 19 09:53:31 UTC 2026"),
        ("Date: Wed, 18 Nov 2026 09:53:30 GMT", "Date: Wed, 18 Nov 2026 09:55:30 GMT"),
        ("3 passed in 0.03s", "3 passed in 12.41s"),
        ("real\t0m0.012s", "real\t0m0.013s"),
        ("took 1.5 seconds", "took 2.25 seconds"),
    ],
)
def test_clock_readings_and_measured_durations_are_volatile(one: str, other: str) -> None:
    assert is_alike(output(one), output(other))
    assert is_alike(user(one), user(other))
    assert not is_alike(message(one), message(other)), "the model's own text counts"
    assert not is_alike(reasoning(one), reasoning(other))
    calls = [function_call("f", {"text": text}, call_id="c") for text in (one, other)]
    assert not is_alike(calls[0], calls[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit code 0", "exit code 1"),
        ("3 passed in 0.03s", "2 passed in 0.03s"),
        ("a.txt 12", "a.txt 13"),
        ("deadbeef", "deadbeee"),
        ("due 2026-11-18", "due 2026-11-19"),
        ("opens at 09:30", "opens at 10:30"),
        ("wait 5 s", "wait 50 s"),
        ("0.5 kg", "0.6 kg"),
        ("in 0.03s", "in 0.03s\n"),
        ("3 passed in 0.03s", "3 passed at 2026-11-18T09:58:02"),
        ("PGID: 12", "PGID: 13"),
    ],
)
def test_what_is_no_clock_reading_counts(one: str, other: str) -> None:
    assert not is_alike(output(one), output(other))


@given(st.text(st.sampled_from("0123 :.-TZNov\n"), max_size=40), st.text(st.sampled_from("abcxyz!"), min_size=1))
def test_a_text_is_never_alike_to_one_with_other_words(text: str, words: str) -> None:
    assert not is_alike(output(text), output(text + words))
    assert is_alike(output(text), output(text))


def test_a_list_of_texts_counts_as_their_text_and_an_image_as_it_is() -> None:
    def parts(text: str, image: str) -> list[Item]:
        return [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": image}]

    assert is_alike(output([{"type": "input_text", "text": "in 0.5s"}]), output("in 0.7s"))
    assert not is_alike(output(parts("in 0.5s", "a.png")), output(parts("in 0.5s", "b.png")))


@pytest.mark.parametrize(
    ("name", "frame", "values"),
    [
        ("codex", "Chunk ID: {0}1\nWall time: {0}.{1} seconds\nExited with code 0\nOutput:\na\n", ("1", "2")),
        ("gemini-cli", "<untrusted_context>\nOutput: a\nProcess Group PGID: {}{}\n</untrusted_context>", ("1", "2")),
        ("qwen-code", "Command: ls\nOutput: a\nExit Code: 0\nProcess Group PGID: {}{}", ("1", "2")),
    ],
)
def test_the_frames_of_programs_are_volatile_where_their_numbers_are_and_nowhere_else(
    name: str, frame: str, values: tuple[str, str]
) -> None:
    patterns = read_declaration(name).volatile
    one, other = frame.format(*values), frame.format(values[1], values[0])
    assert one != other
    assert is_alike(output(one), output(other), *patterns)
    assert not is_alike(output(one), output(other)), "only for this program"
    assert not is_alike(output(one.replace("a\n", "b\n")), output(other), *patterns)
    quoted = [output(f"cat log\n{text}\nend of the log") for text in (one, other)]
    assert not is_alike(quoted[0], quoted[1], *patterns), "the same text inside an output is content"


@pytest.mark.parametrize("name", declared())
def test_hostile_text_takes_no_longer_than_other_text(name: str) -> None:
    volatile = VolatileText(read_declaration(name).volatile)
    pieces = ("1", "1.", "Nov ", "2026-11-18 ", "\nProcess Group PGID: 1", "Today's date ")
    for text in (piece * (300_000 // len(piece)) for piece in pieces):
        _, masked = volatile.content(output(text + "!"))
        assert masked == text + "!"


def test_a_wrong_pattern_is_an_error_of_the_declaration() -> None:
    with pytest.raises(re.error):
        VolatileText(["("])
