"""The flags of `ludus data export`: their types and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_WHICH, _HOW = "Which rollouts", "How rows are written"

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A collection's folder or a file of rollouts.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="sft, dpo, kto, rm, grpo, verl, openai, nemo, nemo-preference, nemo-customizer, atif, hf or csv.",
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="PATH", help="The file to make; a folder for hf; - for stdout.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export of that name.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")]
Outcome = Annotated[
    str,
    typer.Option(metavar="OUTCOME", help="completed, masked or any. Failed ones never.", rich_help_panel=_WHICH),
]
MinReward = Annotated[float | None, typer.Option(help="The least reward.", rich_help_panel=_WHICH)]
MaxReward = Annotated[float | None, typer.Option(help="The greatest reward.", rich_help_panel=_WHICH)]
MinPassRate = Annotated[
    float | None, typer.Option(help="Only tasks that pass at least this often, 0 to 1.", rich_help_panel=_WHICH)
]
MaxPassRate = Annotated[
    float | None, typer.Option(help="Only tasks that pass at most this often, 0 to 1.", rich_help_panel=_WHICH)
]
MinLength = Annotated[
    int | None, typer.Option(help="The fewest characters that the model wrote.", rich_help_panel=_WHICH)
]
MaxLength = Annotated[
    int | None, typer.Option(help="The most characters that the model wrote.", rich_help_panel=_WHICH)
]
Environment = Annotated[
    list[str] | None, typer.Option(help="Only this environment; may be repeated.", rich_help_panel=_WHICH)
]
StopReason = Annotated[
    list[str] | None, typer.Option(help="Only this stop reason; may be repeated.", rich_help_panel=_WHICH)
]
Receipt = Annotated[
    list[str] | None,
    typer.Option(
        help="Only receipts that begin so; the first 12 characters name the verifier.", rich_help_panel=_WHICH
    ),
]
Reasoning = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="keep (as reasoning_content), tags (<think> in the text) or drop.",
        rich_help_panel=_HOW,
    ),
]
Tokens = Annotated[
    bool, typer.Option("--tokens", help="sft, grpo: recorded token ids with loss masks.", rich_help_panel=_HOW)
]
Shape = Annotated[
    str,
    typer.Option(
        metavar="SHAPE", help="sft: messages, or completion (prompt and completion apart).", rich_help_panel=_HOW
    ),
]
Margin = Annotated[
    float,
    typer.Option(
        help="Pairs: the least difference of the two rewards. Equal rewards never make a pair.",
        rich_help_panel=_HOW,
    ),
]
LengthRatio = Annotated[
    float | None,
    typer.Option(
        help="Pairs: the longer answer has at most this many times the characters of the shorter, and of equal "
        "rewards the closest lengths are paired.",
        rich_help_panel=_HOW,
    ),
]
Advantage = Annotated[
    str, typer.Option(metavar="NAME", help="grpo: z_score, group_mean or leave_one_out.", rich_help_panel=_HOW)
]
