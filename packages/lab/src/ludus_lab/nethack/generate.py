"""Endless rows: a dungeon, a character and a goal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ludus_lab.nethack.actions import NAMES

INSTRUCTION = (
    "You play NetHack. You see its screen as text: @ is you, an open door is drawn as ', and the first line is the "
    "game's message. In each answer, think briefly and end with up to 20 actions between tags, separated by commas: "
    "<actions>north, far east, search</actions>. Where the game asks for a letter, that letter is an action; 'more' "
    "goes on after --More--. The actions are: " + ", ".join(NAMES) + "."
)

CHARACTERS = ("val-dwa-law-fem", "sam-hum-law-mal", "bar-orc-cha-mal", "wiz-elf-cha-fem", "arc-dwa-law-mal")


def stream(seed: int, *, goal: str = "depth", target: int = 3, answers: int = 100) -> Iterator[dict[str, Any]]:
    """Rows with one goal, in dungeons and with characters that follow from the seed."""
    generator = random.Random(seed)
    while True:
        character = generator.choice(CHARACTERS)
        yield row(generator.getrandbits(31), character=character, goal=goal, target=target, answers=answers)


def row(
    seed: int, *, character: str = "val-dwa-law-fem", goal: str = "depth", target: int = 2, answers: int = 60
) -> dict[str, Any]:
    """One row."""
    prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Begin."}]
    fields = {"seed": seed, "character": character, "goal": goal, "target": target, "answers": answers}
    return {"responses_create_params": {"input": prompt}, **fields}
