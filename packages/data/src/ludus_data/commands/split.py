"""`ludus data split`: train, validation and test that stay the same when the data grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Option
from ludus_data.commands.progress import print_values, reading


def split(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Files of rows; - is standard input.")],
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="The folder for PART.jsonl.")],
    parts: Annotated[
        str,
        Option(metavar="NAME=SHARE,...", help="The parts and their shares of the sum."),
    ] = "train=0.9,validation=0.05,test=0.05",
    by: Annotated[
        str, Option(metavar="PART", help="What decides: prompt, row, or a field such as metadata.group.")
    ] = "prompt",
    salt: Annotated[str, Option(metavar="TEXT", help="Another text makes another split.")] = "",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace existing files.")] = False,
    json_: Annotated[bool, Option("--json", help="Print the counts as JSON and nothing else.")] = False,
) -> None:
    """Split rows by a hash of their content.

    A row never moves from one part to another when the data grows, and rows with the same prompt stay together. The
    shares hold on average: of 100 rows, about 90 and not exactly 90 are in train. They are divided by their sum, so
    every row lands in a part: train=8,test=1 puts 8 of 9 rows in train.

    Exit code: 0 done, 2 a mistake in the command or a line that is no row.

    Example: ludus data split all.jsonl --parts train=0.95,test=0.05 --output data
    """
    from ludus.cli.screen import safe_json
    from ludus.data.mixing import parse_numbers
    from ludus_data.split import split as split_rows

    shares = parse_numbers("--parts", parts, "Example: --parts train=0.9,test=0.1")
    with reading("splitting", quiet=json_) as tick:
        report = split_rows(files, output, shares, by=by, salt=salt, overwrite=overwrite, tick=tick)
    if json_:
        print(safe_json(report.as_json()))
    else:
        print_values(report.output, {"rows": report.rows, **report.parts})
