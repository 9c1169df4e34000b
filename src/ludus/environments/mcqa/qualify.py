"""How qualification answers multiple choice questions: in the place where each grading mode looks."""

from __future__ import annotations

import re
from typing import Any


def answer(task: Any, text: str) -> str | None:
    """A choice in the form of the row's mode, or of its pattern; None if no text for the pattern could be made."""
    if patterns := (task.template_metadata or {}).get("output_regex"):
        return _by_pattern(patterns[0] if isinstance(patterns, list) else patterns, text)
    return rf"\boxed{{{text}}}" if "boxed" in task.grading_mode else f"Answer: {text}"


def preserving(task: Any) -> dict[str, Any]:
    """The right letter in other forms."""
    if (task.template_metadata or {}).get("output_regex"):
        return {}
    letter = task.expected_answer.strip().upper()
    written = str(answer(task, letter))
    scripts = {
        "after_prose": f"The options differ in one thing. Let me see.\n\n{written}",
        "spaces": str(answer(task, f"  {letter} ")),
        "text_wrapper": str(answer(task, rf"\text{{{letter}}}")),
    }
    if "boxed" in task.grading_mode:
        scripts |= {
            "label": str(answer(task, f"{letter}: {_text(task, letter)}")),
            "dot": str(answer(task, f"{letter}.")),
        }
        scripts["changed_mind"] = rf"\boxed{{{_other(task, letter)}}} No, that is wrong. {written}"
    else:
        scripts |= {"lower_case": str(answer(task, letter.lower())), "option": str(answer(task, _text(task, letter)))}
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Other letters, several letters, and the right letter in the wrong place."""
    letter = task.expected_answer.strip().upper()
    others = [option for option in _letters(task) if option != letter]
    scripts: dict[str, Any] = {f"option_{other}": answer(task, other) or other for other in others}
    if (task.template_metadata or {}).get("output_regex"):  # what else the pattern accepts is unknown
        return scripts
    for other in others[:1]:
        hedges = {"hedged": f"{letter} or {other}", "listed": f"{other}, {letter}", "pair": f"{letter}{other}"}
        scripts |= {name: str(answer(task, text)) for name, text in hedges.items()}
    return scripts | {
        "negation": str(answer(task, f"not {letter}")),
        "unmarked": letter,
        "word": str(answer(task, letter * 3)),
    }


def _by_pattern(pattern: Any, text: str) -> str | None:
    """The literal text before the first group of a pattern, and the choice; None if the pattern does not match it."""
    before = re.split(r"(?<!\\)\(", str(pattern), maxsplit=1)[0]
    written = re.sub(r"\\(.)", r"\1", re.sub(r"\\s[*+?]?", " ", before)) + text
    try:
        return written if re.search(str(pattern), written, re.IGNORECASE) else None
    except re.error:
        return None


def _letters(task: Any) -> list[str]:
    return [key.upper() for option in task.options for key in option]


def _text(task: Any, letter: str) -> str:
    return next((text for option in task.options for key, text in option.items() if key.upper() == letter), "") or ""


def _other(task: Any, letter: str) -> str:
    return next((option for option in _letters(task) if option != letter), letter)
