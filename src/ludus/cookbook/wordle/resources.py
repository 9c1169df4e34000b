"""The word game with five letters and six guesses. A solved game earns more with fewer guesses.

A game is played turn by turn: `reset` shows the first message, `step` answers each guess. It needs no verifier,
because its reward is the sum of the steps' rewards.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

from pydantic import Field

import ludus
from ludus import Game, Response, Step

GUESSES = 6
_GUESS = re.compile(r"<guess>\s*([a-z]{5})\s*</guess>", re.IGNORECASE)


class Wordle(Game):
    """One secret word. `self.steps` holds the guesses so far."""

    class Task(ludus.Task):
        word: Annotated[str, Field(pattern="^[a-z]{5}$")]

    async def reset(self, task: Task) -> str:
        return f"Guess my word of five letters: <guess>.....</guess>. You have {GUESSES} guesses."

    async def step(self, task: Task, response: Response) -> Step:
        used = len(self.steps) + 1
        guesses = _GUESS.findall(response.output_text)
        guess = guesses[0].lower() if len(guesses) == 1 else ""
        if guess == task.word:
            return Step(reward=1 - 0.1 * (used - 1), terminated=True, info={"solved": True, "guesses": used})
        if used == GUESSES:
            return Step(terminated=True, info={"solved": False, "guesses": used})
        hint = marks(task.word, guess) if guess else "Write exactly one <guess> with five letters."
        return Step(f"{hint}\n{GUESSES - used} guesses left.")


def marks(word: str, guess: str) -> str:
    """A mark below each letter: `=` in the right place, `?` in another place, `.` not in the word.

    A letter gets at most as many marks as the word has of it.
    """
    left = Counter(letter for letter, other in zip(word, guess, strict=True) if letter != other)
    row = ["=" if letter == other else "." for letter, other in zip(word, guess, strict=True)]
    for place, letter in enumerate(guess):
        if row[place] == "." and left[letter] > 0:
            row[place] = "?"
            left[letter] -= 1
    return f"{guess}\n{''.join(row)}"
