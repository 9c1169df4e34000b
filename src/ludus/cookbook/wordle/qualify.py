"""How `ludus qualify` plays: it knows the word."""

from __future__ import annotations

from typing import Any


def answer(task: Any, text: str) -> str:
    """A guess between its tags."""
    return f"<guess>{text}</guess>"


def oracle(task: Any) -> str:
    """The word at once."""
    return answer(task, task.word)


def preserving(task: Any) -> dict[str, Any]:
    """The word in other forms."""
    return {
        "upper_case": answer(task, task.word.upper()),
        "after_thought": f"Common letters first.\n{answer(task, task.word)}",
        "second_guess": [answer(task, "zzzzz"), answer(task, task.word)],
    }


def breaking(task: Any) -> dict[str, Any]:
    """The word without its tags, beside another one, backwards, and much too late."""
    right = answer(task, task.word)
    return {
        "no_tags": task.word,
        "two_guesses": f"{answer(task, 'zebra')} {right}",
        "same_twice": f"{right} {right}",
        "backwards": answer(task, task.word[::-1]) if task.word != task.word[::-1] else "",
        "seventh_guess": [*[answer(task, "zzzzz")] * 6, right],
        "last_guess": [*[answer(task, "zzzzz")] * 5, right],
    }


def exploits(task: Any) -> dict[str, Any]:
    """One word for every game, and many words in one answer."""
    words = "crane slate house world pixel mango level".split()
    return {"same_word": answer(task, "slate"), "many_words": " ".join(answer(task, word) for word in words)}
