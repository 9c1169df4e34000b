"""`ludus data dedupe`: leave out rows that came before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Exit, Option
from ludus_data.commands.progress import FOUND, print_columns, print_values, reading


def dedupe(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Files of rows; - is standard input.")],
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="Write the rows that stay; default: only report."),
    ] = None,
    near: Annotated[
        float | None,
        Option(metavar="SIMILARITY", help="Leave out similar rows too, from this similarity on, such as 0.8."),
    ] = None,
    by: Annotated[
        str, Option(metavar="PART", help="What must be equal: prompt, row, or a field such as question.")
    ] = "prompt",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing file.")] = False,
    json_: Annotated[bool, Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Find duplicated rows, exact ones and with --near similar ones. The first of them stays.

    The similarity of two texts is the share of their runs of three words that both have. It is estimated with MinHash;
    about 95 of 100 pairs at the threshold are found.

    Exit code: 0 no duplicates, or they were left out of --output; 1 duplicates found; 2 a mistake in the command.

    Example: ludus data dedupe all.jsonl --near 0.8 --output unique.jsonl
    """
    from ludus.cli.screen import safe_json
    from ludus_data.dedupe import dedupe as dedupe_rows

    with reading("comparing", quiet=json_) as tick:
        report = dedupe_rows(files, output, by=by, near=near, overwrite=overwrite, tick=tick)
    if json_:
        print(safe_json(report.as_json()))
    else:
        lines = [[duplicate.where, duplicate.first, f"{duplicate.similarity:.3g}"] for duplicate in report.examples]
        print_columns("the first duplicates", ["row", "came before at", "similarity"], lines)
        values = {"rows": report.rows, "kept": report.kept, "exact duplicates": report.exact}
        values |= {"of these with other fields": report.differ, "near-duplicates": report.near}
        print_values(report.output or "duplicates", dict(values))
    raise Exit(FOUND if output is None and report.kept < report.rows else 0)
