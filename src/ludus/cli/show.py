"""`ludus show`: read rollouts in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

Row = dict[str, Any]


def show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A collection's folder, or a file of rollouts; with --browse, any folder."),
    ] = None,
    which: Annotated[
        str | None,
        typer.Argument(metavar="N", help="A rollout's number from 1, or its id; default: list them."),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="ROLLOUT_ID", help="The rollout with this id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Show the failed attempts.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many rollouts to list.")] = 20,
    browse: Annotated[
        bool, typer.Option("--browse", "-b", help="Browse runs, tasks and rollouts; default FILE: runs.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read rollouts in the terminal.

    Without N it lists them. With N it shows one in full: prompt, reasoning, calls, outputs, verdict, times and tokens.

    Example: ludus show runs/first 3

    Browse everything below a folder, also while it is collected: ludus show runs --browse
    """
    if browse:
        _browse(file, which or id_, as_json=json_)
        return
    if file is None:
        usage_error: Any = typer.BadParameter.__base__  # click's, which some versions of typer vendor
        raise usage_error("Missing argument 'FILE'.")
    rollouts, failures = _files(file)
    source = failures if failed else rollouts
    if which is not None and not which.isdecimal():
        which, id_ = None, id_ or which
    if id_ is not None:
        _show_one(_by_id([source, failures], id_), json_)
    elif which is not None:
        _show_one(_by_number(source, int(which), file, failures), json_)
    else:
        _list(source, limit, json_, failures)


def _browse(file: Path | None, rollout: str | None, *, as_json: bool) -> None:
    """Open the browser. It needs a terminal, and the extra `tui`."""
    import sys

    from ludus.errors import UserError, missing_extra

    if rollout is not None or as_json:
        raise UserError("--browse shows all rollouts in a terminal", "Leave N, --id and --json out")
    found = file or (Path("runs") if Path("runs").is_dir() else Path())
    if not found.exists():
        raise UserError(f"{found} does not exist", "Name a collection's folder, or a folder with several of them")
    try:
        from ludus.cli.browser.app import browse
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise missing_extra("textual", "tui") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--browse needs a terminal", f"Without one: ludus show {found}, or ludus view {found}")
    browse([found])


def _files(given: Path) -> tuple[Path, Path]:
    """The file of rollouts, and the file of the same collection's failed attempts."""
    from ludus.errors import UserError
    from ludus.store.run import Files

    try:
        given.stat()
    except OSError as error:
        raise UserError(f"cannot read {given}: {error.strerror}", "Name a collection's folder or a file") from error
    if given.name == "failures.jsonl" or given.name.endswith(".failures.jsonl"):
        return given, given
    files = Files(given)
    if not given.is_dir():
        failures = files.failures
        if given.name == "rollouts.jsonl" and not failures.exists():  # a file inside a collection's folder
            failures = given.with_name("failures.jsonl")
        return given, failures
    if not files.rollouts.exists() and not files.failures.exists():
        inside = sorted(given.glob("*/rollouts.jsonl"), key=lambda path: path.stat().st_mtime)
        hint = f"Name one of the runs in it: ludus show {inside[-1].parent}" if inside else ""
        hint = hint or "Collect some with: ludus collect ENV --output DIR"
        raise UserError(f"{given} holds no rollouts.jsonl", hint)
    return files.rollouts, files.failures


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, blank lines left out."""
    from ludus.errors import cannot_read
    from ludus.runtime.formats import refuse_all_but_json_lines

    try:
        with path.open("rb") as lines:
            refuse_all_but_json_lines(path, lines)
            for number, line in enumerate(lines, start=1):
                if not line.isspace():
                    yield number, line
    except OSError as error:
        raise cannot_read(path, error) from error


def _parse(path: Path, number: int, line: bytes) -> Row:
    """Parse a line as a rollout; an error names the file and the line."""
    import orjson

    from ludus.errors import UserError
    from ludus.runtime.encoding import json_error

    hint = "Name a file that ludus collect wrote"
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if number > 1 and not line.endswith(b"\n"):
            hint = "The collection still runs, or was killed: ludus collect --resume repairs the file"
            raise UserError(f"{path}:{number}: the last line is incomplete", hint) from error
        raise UserError(f"{path}:{number}: {json_error(error)}", hint) from error
    if not isinstance(row, dict) or not ("outcome" in row or isinstance(row.get("response"), dict)):
        raise UserError(f"{path}:{number}: not a rollout", hint)
    return row


def _by_number(path: Path, wanted: int, given: Path, failures: Path) -> Row:
    from ludus.errors import UserError

    count = 0
    for count, (number, line) in enumerate(_lines(path), start=1):
        if count == wanted:
            return _parse(path, number, line)
    hint = f"Choose a number from 1 to {count}" if count else "The file is empty"
    failed = sum(1 for _ in _lines(failures)) if path != failures and failures.exists() else 0
    if failed and not count:
        hint = f"{failed:,} failed: show one with: ludus show {given} {min(max(wanted, 1), failed)} --failed"
    elif failed:
        hint += f". {failed:,} failed: add --failed to choose from them"
    raise UserError(f"{path} has no rollout {wanted}", hint)


def _by_id(paths: list[Path], rollout_id: str) -> Row:
    """The rollout with this id; of several failed attempts the last one."""
    from ludus.errors import UserError

    for path in paths:
        found = None
        for number, line in _lines(path) if path.exists() else ():
            row = _parse(path, number, line)
            if row.get("rollout_id") == rollout_id:
                found = row
        if found is not None:
            return found
    raise UserError(f"{paths[0]} has no rollout {rollout_id}", f"List the ids with: ludus show {paths[0]}")


def _show_one(row: Row, as_json: bool) -> None:
    from ludus.cli.rollout_view import show_rollout
    from ludus.cli.screen import safe_json, stdout_console

    if as_json:
        print(safe_json(row))
    else:
        show_rollout(stdout_console(), row)


def _list(path: Path, limit: int, as_json: bool, failures: Path) -> None:
    """List the first rollouts of a file. Rows before an unreadable line are listed before the error."""
    from ludus.cli.rollout_view import show_summaries, summary
    from ludus.cli.screen import emit, safe_json, stdout_console, text
    from ludus.errors import UserError

    rows: list[Row] = []
    problem, more = None, 0
    lines = _lines(path)
    try:
        for number, line in lines:
            if len(rows) == limit:
                more = 1 + sum(1 for _ in lines)
                break
            rows.append(summary(len(rows) + 1, _parse(path, number, line)))
    except UserError as error:
        problem = error
    failed = sum(1 for _ in _lines(failures)) if failures != path and failures.exists() else 0
    if as_json and problem is None:
        print(safe_json(rows))
    elif rows and not as_json:
        console = stdout_console()
        show_summaries(console, rows)
        for count, what in ((more, f"more: list them with --limit {limit + more}"), (failed, "failed: add --failed")):
            if count:
                emit(console, text(f"{count:,} {what}", "dim"))
    if problem is not None:
        raise problem
    if not rows and not as_json:
        if path == failures:
            print("no attempt failed")
            return
        hint = f"{failed:,} failed: list them with --failed" if failed else "Name another collection"
        raise UserError(f"{path} is empty", hint)
