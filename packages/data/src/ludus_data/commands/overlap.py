"""`ludus data overlap`: is the test set in the training set?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Exit, Option
from ludus_data.commands.progress import FOUND, print_columns, print_values, reading


def overlap(
    train: Annotated[Path, Argument(metavar="A", help="The training set.")],
    test: Annotated[Path, Argument(metavar="B", help="The held-out set.")],
    words: Annotated[int, Option(min=1, max=1000, help="The length of the runs of words.")] = 13,
    threshold: Annotated[float, Option(help="A row of B overlaps if this share of its runs occurs in A.")] = 0.5,
    allow: Annotated[float, Option(min=0, max=1, help="The share of B's rows that may overlap.")] = 0.0,
    by: Annotated[str, Option(metavar="PART", help="What is compared: prompt, row, or a field.")] = "prompt",
    json_: Annotated[bool, Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Find rows of B whose text stands in A. This is contamination: runs of words are compared, and examples shown.

    Runs that many rows of B have, such as instructions, do not count. A text with fewer words than a run overlaps if A
    has a row with the same words.

    Exit code: 0 at most --allow of B overlaps, 1 more overlaps, 2 a mistake in the command.

    Example: ludus data overlap train.jsonl test.jsonl --words 8
    """
    from ludus.cli.screen import safe_json
    from ludus_data.overlap import overlap as find_overlap

    with reading("comparing", quiet=json_) as tick:
        report = find_overlap([train], [test], size=words, threshold=threshold, by=by, tick=tick)
    if json_:
        print(safe_json(report.as_json()))
    else:
        lines = [[example.where, example.first, f"{example.share:.0%}", example.text] for example in report.examples]
        print_columns("the first rows that overlap", ["row of B", "row of A", "share", "in both"], lines)
        values: dict[str, object] = {"rows of A": report.train_rows, "rows of B": report.test_rows}
        values |= {"overlapping": f"{report.overlapping:,} ({report.share:.2%} of B)"}
        values |= {"without words of their own": report.only_template}
        print_values("overlap", values)
    raise Exit(FOUND if report.share > allow else 0)
