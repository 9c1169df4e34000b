"""`ludus show`: read rollouts in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from ludus.cli.commands import Argument, Option, UsageError
from ludus.runtime.numbers import whole_number

Row = dict[str, Any]

_HINT = "Name a file that ludus collect wrote"


def show(
    file: Annotated[
        Path | None,
        Argument(metavar="FILE", help="A collection's folder, or a file of rollouts; with --browse, any folder."),
    ] = None,
    which: Annotated[
        str | None, Argument(metavar="N", help="A rollout's number from 1, or its id; default: list them.")
    ] = None,
    id_: Annotated[str | None, Option("--id", metavar="ROLLOUT_ID", help="The rollout with this id.")] = None,
    failed: Annotated[bool, Option("--failed", help="Show the failed attempts.")] = False,
    limit: Annotated[int, Option("--limit", min=1, help="How many rollouts to list.")] = 20,
    browse: Annotated[
        bool, Option("--browse", "-b", help="Browse runs, tasks and rollouts; default FILE: runs.")
    ] = False,
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read rollouts in the terminal.

    Without N it lists them. With N it shows one in full: prompt, reasoning, calls, outputs, verdict, times and tokens.

    Example: ludus show runs/first 3

    Browse everything below a folder, also while it is collected: ludus show runs --browse
    """
    if browse:
        from ludus.cli import packaged_command
        from ludus.errors import UserError

        if which is not None or id_ is not None or json_:
            raise UserError("--browse shows all rollouts in a terminal", "Leave N, --id and --json out")
        packaged_command("browse")(file)
        return
    if file is None:
        raise UsageError("Missing argument 'FILE'.")
    listed = _Listed(file, failed=failed)
    number = whole_number(which or "")
    if number is None:
        id_ = id_ or which
    if id_ is not None:
        _show_one(listed.by_id(id_), json_)
    elif number is not None:
        _show_one(listed.by_number(number), json_)
    else:
        _list(listed, limit, json_)


class _Listed:
    """The rollouts of a run, or its failed attempts, as `show` numbers them: those that count, from 1."""

    def __init__(self, file: Path, *, failed: bool) -> None:
        from ludus.errors import UserError
        from ludus.store.files import FAILURES, Files

        try:
            file.stat()
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}", "Name a collection's folder or a file") from error
        files = Files.of(file)
        self.file, self.rollouts, self.failures = file, files.rollouts, files.failures
        if file.name == FAILURES or file.name.endswith(f".{FAILURES}"):
            self.failures, failed = file, True
        elif not self.rollouts.exists() and not self.failures.exists():
            inside = sorted(file.glob("*/rollouts.jsonl"), key=lambda path: path.stat().st_mtime)
            hint = f"Name one of the runs in it: ludus show {inside[-1].parent}" if inside else ""
            raise UserError(
                f"{file} holds no rollouts.jsonl", hint or "Collect some with: ludus collect ENV --output DIR"
            )
        self.failed = failed
        self.path = self.failures if failed else self.rollouts

    def __iter__(self) -> Iterator[Row]:
        """The rows. Those before a line that cannot be read come before the error."""
        return (_parse(self.path, number, line) for number, line in self.lines())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines, each with its number. A torn last line is the last one."""
        from ludus.errors import UserError
        from ludus.store.lines import StoredLines

        if self.failed:
            if not self.failures.exists():
                raise UserError(f"cannot read {self.failures}: No such file or directory", "Check the path")
            yield from self.failed_lines()
            return
        with StoredLines(self.rollouts) as lines:
            yield from lines.counted()
        if lines.torn:
            hint = "The collection still runs, or was killed: ludus collect --resume repairs the file"
            raise UserError(f"{self.rollouts}:{lines.torn}: the last line is incomplete", hint)

    def failed_lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines of the failed attempts."""
        from ludus.store.counting import SeenRollouts
        from ludus.store.stored_run import failed_attempts

        return ((attempt.number, attempt.line) for attempt in failed_attempts(self.failures, SeenRollouts(), _HINT))

    def count_failed(self) -> int:
        """How many failed attempts there are beside what is listed."""
        return 0 if self.failed else sum(1 for _ in self.failed_lines())

    def by_number(self, wanted: int) -> Row:
        """The rollout with a number."""
        from ludus.errors import UserError

        count = 0
        for count, (number, line) in enumerate(self.lines(), start=1):
            if count == wanted:
                return _parse(self.path, number, line)
        hint = f"Choose a number from 1 to {count}" if count else "The file is empty"
        failed = self.count_failed()
        if failed and not count:
            hint = f"{failed:,} failed: show one with: ludus show {self.file} {min(max(wanted, 1), failed)} --failed"
        elif failed:
            hint += f". {failed:,} failed: add --failed to choose from them"
        raise UserError(f"{self.path} has no rollout {wanted}", hint)

    def by_id(self, rollout_id: str) -> Row:
        """The rollout with this id; of several failed attempts the last one."""
        from ludus.errors import UserError

        with_id = [row for row in self if row.get("rollout_id") == rollout_id] if self.path.exists() else []
        if not with_id and not self.failed:
            rows = (_parse(self.failures, *line) for line in self.failed_lines())
            with_id = [row for row in rows if row.get("rollout_id") == rollout_id]
        if not with_id:
            raise UserError(f"{self.path} has no rollout {rollout_id}", f"List the ids with: ludus show {self.path}")
        return with_id[-1]


def _parse(path: Path, number: int, line: bytes) -> Row:
    """Parse a line as a rollout; an error names the file and the line."""
    from ludus.errors import UserError
    from ludus.store.parsing import parse_at

    row = parse_at(f"{path}:{number}", line, _HINT)
    if not ("outcome" in row or isinstance(row.get("response"), dict)):
        raise UserError(f"{path}:{number}: not a rollout", _HINT)
    return row


def _show_one(row: Row, as_json: bool) -> None:
    from ludus.cli.rollout_view import show_rollout
    from ludus.cli.screen import safe_json, stdout_console

    if as_json:
        print(safe_json(row))
    else:
        show_rollout(stdout_console(), row)


def _list(listed: _Listed, limit: int, as_json: bool) -> None:
    """List the first rollouts of a run. Rows before an unreadable line are listed before the error."""
    from ludus.cli.rollout_view import show_summaries, summary
    from ludus.cli.screen import emit, safe_json, stdout_console, text
    from ludus.errors import UserError
    from ludus.store.stored_run import StoredRun, environment_of
    from ludus.store.verifiers import Verifiers, verifier_warnings

    rows: list[Row] = []
    verifiers = Verifiers()
    problem, more, failed = None, 0, listed.count_failed()
    lines = listed.lines()
    try:
        for number, line in lines:
            if len(rows) == limit:
                more = 1 + sum(1 for _ in lines)
                break
            row = _parse(listed.path, number, line)
            verifiers.add(environment_of(row), row.get("receipt"))
            rows.append(summary(len(rows) + 1, row))
    except UserError as error:
        problem = error
    if as_json and problem is None:
        print(safe_json(rows))
    elif rows and not as_json:
        console = stdout_console()
        show_summaries(console, rows)
        for count, what in ((more, f"more: list them with --limit {limit + more}"), (failed, "failed: add --failed")):
            if count:
                emit(console, text(f"{count:,} {what}", "dim"))
        several = StoredRun(listed.file).metrics().get("several_verifiers") or verifiers.several()
        for warning in verifier_warnings(several):
            emit(console, text(f"warning: {warning}", "yellow"))
    if problem is not None:
        raise problem
    if not rows and not as_json:
        if listed.failed:
            print("no attempt failed")
            return
        hint = f"{failed:,} failed: list them with --failed" if failed else "Name another collection"
        raise UserError(f"{listed.path} is empty", hint)
