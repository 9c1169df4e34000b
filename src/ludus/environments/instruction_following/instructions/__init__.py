"""Instructions that a program can check: "no commas", "at least three sentences", "answer in Swahili".

Each of the 54 is a plain function from a text and its arguments to a bool, in a file by what it looks at. The registry
names them as datasets do and says which arguments each takes:

    follows("The river is wide.", "keywords:existence", {"keywords": ["river"]})   # True

A text is hostile by nature: no function raises on one, and none takes more than time proportional to its length. Where
datasets were graded by a reference that is known to be wrong, `compat=True` gives its verdict.
"""

from ludus.environments.instruction_following.instructions.registry import (
    INSTRUCTIONS,
    Instruction,
    InstructionError,
    follows,
)

__all__ = ["INSTRUCTIONS", "Instruction", "InstructionError", "follows"]
