"""Instructions that a program can check: "no commas", "at least three sentences", "answer in Swahili".

Each of the 54 instructions is a plain function from a text and arguments to a bool; each file holds the functions that
look at one aspect of the text. The registry maps the names that datasets use to these functions:

    follows("The river is wide.", "keywords:existence", {"keywords": ["river"]})   # True

A text may be hostile: no function raises on any text, and each takes time proportional to the text's length. The
reference, NeMo Gym's checkers, is known to be wrong in places; `compat=True` gives its verdict there.
"""

from ludus.environments.instruction_following.instructions.registry import (
    INSTRUCTIONS,
    Instruction,
    InstructionError,
    follows,
)

__all__ = ["INSTRUCTIONS", "Instruction", "InstructionError", "follows"]
