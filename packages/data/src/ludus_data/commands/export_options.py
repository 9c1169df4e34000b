"""The flags of `ludus data export`: their types and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Option

_WHICH, _HOW = "Which rollouts", "How rows are written"

Run = Annotated[Path, Argument(metavar="RUN", help="A collection's folder or a file of rollouts.")]
To = Annotated[
    str,
    Option(
        "--to",
        metavar="FORMAT",
        help="sft, dpo, kto, rm, grpo, verl, openai, nemo, nemo-preference, nemo-customizer, atif, hf or csv.",
    ),
]
Output = Annotated[
    str, Option("--output", "-o", metavar="PATH", help="The file to make; a folder for hf; - for stdout.")
]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace an earlier export of that name.")]
Json = Annotated[bool, Option("--json", help="Print the summary as JSON and nothing else.")]
Outcome = Annotated[
    str,
    Option(metavar="OUTCOME", help="completed, masked or any. Failed ones never.", panel=_WHICH),
]
MinReward = Annotated[float | None, Option(help="The least reward.", panel=_WHICH)]
MaxReward = Annotated[float | None, Option(help="The greatest reward.", panel=_WHICH)]
MinPassRate = Annotated[float | None, Option(help="Only tasks that pass at least this often, 0 to 1.", panel=_WHICH)]
MaxPassRate = Annotated[float | None, Option(help="Only tasks that pass at most this often, 0 to 1.", panel=_WHICH)]
MinLength = Annotated[int | None, Option(help="The fewest characters that the model wrote.", panel=_WHICH)]
MaxLength = Annotated[int | None, Option(help="The most characters that the model wrote.", panel=_WHICH)]
Environment = Annotated[list[str] | None, Option(help="Only this environment; may be repeated.", panel=_WHICH)]
StopReason = Annotated[list[str] | None, Option(help="Only this stop reason; may be repeated.", panel=_WHICH)]
Receipt = Annotated[
    list[str] | None,
    Option(help="Only receipts with this prefix; the first 12 characters name the verifier.", panel=_WHICH),
]
Reasoning = Annotated[
    str,
    Option(
        metavar="CHOICE",
        help="keep (as reasoning_content), tags (<think> in the text) or drop.",
        panel=_HOW,
    ),
]
Tokens = Annotated[bool, Option("--tokens", help="sft, grpo: recorded token ids with loss masks.", panel=_HOW)]
Shape = Annotated[
    str,
    Option(metavar="SHAPE", help="sft: messages, or completion (prompt and completion apart).", panel=_HOW),
]
Margin = Annotated[
    float,
    Option(
        help="Pairs: the least difference of the two rewards. Equal rewards never make a pair.",
        panel=_HOW,
    ),
]
LengthRatio = Annotated[
    float | None,
    Option(
        help="Pairs: the longer answer has at most this many times the characters of the shorter, and of equal "
        "rewards the closest lengths are paired.",
        panel=_HOW,
    ),
]
Advantage = Annotated[str, Option(metavar="NAME", help="grpo: z_score, group_mean or leave_one_out.", panel=_HOW)]
