"""Texts that repeat the prompt, or a part of it, or themselves."""

from __future__ import annotations

from ludus.environments.instruction_following.instructions.arguments import Count, Ordinal, Text, Word

_DIVIDER = "******"


def two_responses(text: str) -> bool:
    """Two different answers stand between six asterisks."""
    parts = [part.strip() for part in text.split(_DIVIDER)]
    answers = [part for part in parts if part]
    return all(parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def repeat_prompt(text: str, *, prompt_to_repeat: Text) -> bool:
    """The text begins with the prompt, in any case."""
    return _normalized(text).startswith(_normalized(prompt_to_repeat))


def copy(text: str, *, prompt_to_repeat: Text) -> bool:
    """The text is the prompt, in any case."""
    return _normalized(text) == _normalized(prompt_to_repeat)


def copying_multiple(text: str, *, prompt_to_repeat: Text, N: Count) -> bool:
    """The text is the prompt N times, in any case, between six asterisks."""
    parts = text.split(_DIVIDER)
    return len(parts) == N and all(_normalized(part) == _normalized(prompt_to_repeat) for part in parts)


def copy_span_idx(text: str, *, prompt_to_repeat: Text, n_start: Count, n_end: Count, compat: bool = False) -> bool:
    """The text is the prompt from character `n_start` to character `n_end`, in any case.

    The instruction includes the last character and the reference leaves it out. Both are accepted here.
    """
    ends = [n_end] if compat else [n_end, n_end + 1]
    return any(_normalized(text) == _normalized(prompt_to_repeat[n_start:end]) for end in ends)


def repeat_phrase(text: str, *, phrase: Word, small_n: Ordinal, compat: bool = False) -> bool:
    """The phrase occurs `small_n` times, each time with one word of its middle replaced.

    In the reference only the last repetition has to differ.
    """
    words = phrase.split()
    first, middle, last = words[0], words[1:-1], words[-1]
    spans = [span.split() for span in _spans(text, f"{first} ", f" {last}")]
    if len(spans) != small_n or any(len(span) != len(middle) for span in spans):
        return False
    changes = [sum(word != original for word, original in zip(span, middle, strict=True)) for span in spans]
    return max(changes) <= 1 and min(changes[-1:] if compat else changes) == 1


def _spans(text: str, first: str, last: str) -> list[str]:
    """The texts between the first and the last word, if both are on one line."""
    spans = []
    start = 0
    while (start := text.find(first, start)) >= 0:
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        inner = start + len(first)
        end = text.find(last, inner, line_end)
        if end >= 0:
            spans.append(text[inner:end])
        start = end + len(last) if end >= 0 else line_end
    return spans


def _normalized(text: str) -> str:
    return text.strip().lower()
