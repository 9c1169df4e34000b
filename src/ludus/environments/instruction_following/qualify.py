"""How qualification answers the example rows: with answers written by hand.

The content of an answer is not graded, so a bad policy that happens to follow the instructions earns the reward.
"""

from __future__ import annotations

from typing import Any

_RIGHT = {
    1: "The harbour wakes slowly while gulls cry over still boats and a pale sun climbs from the sea.",
    2: "Dear [name], I found your cat in my garden. Call me at [number].\n\nP.S. She likes tuna.",
    3: "* A small boat\n* A bottle of water\n* A hat against the sun\n\nHave fun.",
    4: "Bienen finden ihren Weg nach Hause, weil sie sich an der Sonne und an Landmarken in der Umgebung orientieren.",
    5: "My answer is yes.",
    6: '{"name": "Mary Kidd", "age": 34}',
    7: "Silver Whisper\n******\nGrumpy Pebble",
    8: "moonlight is borrowed from the sun. moonlight changes with the days. moonlight moves the night and the sea.",
}
_WRONG = {
    1: {
        "comma": "The harbour wakes slowly, while gulls cry over boats and a pale sun climbs from the sea.",
        "short": "A harbour.",
    },
    2: {
        "one_placeholder": "Dear [name], I found your cat.\n\nP.S. She likes tuna.",
        "no_postscript": "Dear [name], call [number].",
    },
    3: {"four_points": "* boat\n* water\n* hat\n* rope\n\nHave fun.", "other_end": "* boat\n* water\n* hat\n\nFun!"},
    4: {"english": "Bienen is the German word for bees, which find their way home by the sun and by what they see."},
    5: {"other_words": "Yes.", "off_by_a_word": "My answer is surely yes."},
    6: {"prose": 'Here she is: {"name": "Mary Kidd", "age": 34}', "cut_off": '{"name": "Mary Kidd", "age": 3'},
    7: {"one_name": "Silver Whisper", "the_same": "Grey\n******\nGrey"},
    8: {
        "capital": "Moonlight is borrowed. Moonlight changes. Moonlight moves.",
        "two": "moonlight is borrowed. moonlight moves.",
    },
}
_WHY = "some examples ask for little, and any text that follows their instructions is right"

_FAMILIES = "constant enumeration premature_stop tag_stuffing judge_injection tool_spam"

expected_exploits = {family: (0.25, _WHY) for family in _FAMILIES.split()} | {
    "echo": (0.35, _WHY),
    "empty": (0.1, "graded by fraction, an empty answer earns the share of instructions that it follows"),
}


def oracle(task: Any) -> str | None:
    """The answer to an example row; None for any other row."""
    return _RIGHT.get(task.id) if _is_example(task) else None


def preserving(task: Any) -> dict[str, Any]:
    """The same answer with blank lines around it, or after reasoning."""
    return {
        "blank_lines": f"\n{_RIGHT[task.id]}\n\n",
        "reasoned": [{"reasoning": "Hm, commas.", "text": _RIGHT[task.id]}],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Answers that miss one instruction."""
    return dict(_WRONG[task.id])


def _is_example(task: Any) -> bool:
    """Whether the row is an example row, by the first words of its prompt."""
    begins = (
        "Describe a harbour",
        "Write a note",
        "What should I pack",
        "How do bees",
        "Is a tomato",
        "Invent a pirate",
    )
    return str(task.verifier_metadata.prompt).startswith(
        (*begins, "Suggest two different names", "Tell me about the moon")
    )
