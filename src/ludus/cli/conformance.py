"""`ludus conformance`: check that a trainer gets every token, mask, logprob and reward as the rollouts have them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from ludus.cli.commands import Argument, Exit, Option


def conformance(
    trainer: Annotated[
        str, Argument(metavar="TRAINER", help="trl, verl or another of docs/trainers.md, or module:Class.")
    ],
    json_: Annotated[bool, Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Check the data that an adapter hands to its trainer.

    Scripted rollouts are sent through the adapter: failed and masked members, a straggler, several sequences and
    changes of the weights. The exit code is 1 if anything is wrong. Your own adapter is a class with name,
    several_sequences and deliver (docs/training.md). The package ludus-trainers has those of other trainers than TRL.

    Example: ludus conformance trl
    """
    from rich.table import Table

    from ludus.cli.screen import safe_json, stdout_console, text
    from ludus.train.conformance.adapters import find_adapter
    from ludus.train.conformance.checking import check

    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script does not import from the working directory
    report = check(find_adapter(trainer))
    if json_:
        print(safe_json({"trainer": report.adapter, "passed": report.passed, "problems": report.problems}))
    else:
        table = Table(title=f"{report.adapter}: {'passed' if report.passed else 'FAILED'}", title_justify="left")
        table.add_column("rollouts")
        table.add_column("result", overflow="fold")
        for name, problems in report.problems.items():
            table.add_row(text(name), text("\n".join(problems) or "as scripted"))
        stdout_console().print(table)
    if not report.passed:
        raise Exit(1)
