"""`ludus data validate`: check every row of a dataset before a model is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, Exit, Option
from ludus_data.commands.progress import FOUND, print_values, reading

if TYPE_CHECKING:
    from ludus_data.validate import RowWarning, ValidationReport


def validate(
    files: Annotated[
        list[Path] | None,
        Argument(metavar="[FILE]...", help="Files of rows; default: the datasets of --env."),
    ] = None,
    env: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="ENV", help="The rows' environment; with several, each row names its own."),
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Check every row against its environment.

    Each problem has file, line, field and reason. The first hundred are shown and all are counted. Warnings tell of
    misspelled request fields, missing right answers and answers that stand in the prompt.

    Exit code: 0 all rows are good, 1 there are bad rows, 2 a mistake in the command.

    Example: ludus data validate train.jsonl --env math_with_judge
    """
    from ludus.cli.screen import prints_to_stderr, safe_json
    from ludus_data.validate import validate as validate_rows

    with reading("validating", quiet=json_) as tick, prints_to_stderr(json_):
        report = validate_rows(files or [], env or [], tick)
    if json_:
        print(safe_json(report.as_json()))
    else:
        _show(report)
    raise Exit(FOUND if report.bad_rows else 0)


def _show(report: ValidationReport) -> None:
    from ludus.cli.screen import emit, one_line, stdout_console, text

    console = stdout_console()
    for problem in report.problems:
        named = problem.field == "row" or problem.reason.startswith(problem.field)
        reason = problem.reason if named else f"{problem.field}: {problem.reason}"
        hint = f". {problem.hint}" if problem.hint else ""
        emit(console, text(one_line(f"{problem.where}: {reason}{hint}"), "red"))
    if report.problem_count > len(report.problems):
        emit(console, text(f"and {report.problem_count - len(report.problems):,} more problems", "red"))
    for warning in (*report.typos, *map(_sentence, report.warnings)):
        emit(console, text(f"warning: {one_line(warning)}", "yellow"))
    values: dict[str, object] = {"rows": report.rows, "bad rows": report.bad_rows, "problems": report.problem_count}
    values |= {f"rows of {name}": count for name, count in report.environments.items()}
    print_values("all rows are good" if not report.bad_rows else "bad rows found", values)


def _sentence(warning: RowWarning) -> str:
    more = warning.rows - 1
    others = f" ({more:,} more {'row' if more == 1 else 'rows'} of {warning.environment})" if more else ""
    return f"{warning.where}: {warning.message}{others}"
