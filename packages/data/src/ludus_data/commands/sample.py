"""`ludus data sample`: some rows, to look at or to try."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from ludus.cli.commands import Argument, Option
from ludus.runtime.option_limits import MAX_COUNT, MAX_INT64
from ludus_data.commands.progress import reading


def sample(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Files of rows; - is standard input.")],
    count: Annotated[int, Option("--count", "-n", min=1, max=MAX_COUNT, help="How many rows.")] = 100,
    seed: Annotated[int, Option(min=-MAX_INT64, max=MAX_INT64, help="The same seed gives the same rows.")] = 0,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="The file for the rows; default: stdout.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing file.")] = False,
    json_: Annotated[bool, Option("--json", help="Print one JSON object: the number of rows, and the sample.")] = False,
) -> None:
    """Choose rows at random, each with the same chance. They keep their order.

    Exit code: 0 done, 2 a mistake in the command.

    Example: ludus data sample train.jsonl -n 20 --output few.jsonl
    """
    from ludus.cli.screen import safe_json
    from ludus.data.row_checks import parse_row
    from ludus.store.drafts import check_new, draft
    from ludus_data.inputs import ends_with_newline
    from ludus_data.sample import sample as sample_rows

    if output is not None:
        check_new(output, overwrite=overwrite)
    with reading("sampling", quiet=json_) as tick:
        lines, rows = sample_rows(files, count, seed, tick)
    if output is not None:
        with draft(output, "Choose another --output") as file:
            file.writelines(ends_with_newline(line) for _, line in lines)
    if json_:
        report: dict[str, Any] = {
            "rows": rows,
            "sampled": len(lines),
            "output": str(output) if output is not None else None,
        }
        if output is None:
            report["sample"] = [parse_row(where, line) for where, line in lines]
        print(safe_json(report))
    elif output is not None:
        print(f"{output}: {len(lines):,} of {rows:,} rows")
    else:
        sys.stdout.flush()
        for _, line in lines:
            sys.stdout.buffer.write(ends_with_newline(line))
