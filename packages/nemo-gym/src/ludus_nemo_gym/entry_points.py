"""The `ng_*` commands' shared parts: the entry point around each command, and helpers for options and output.

Every command takes overrides in Hydra's style. `+help=true`, `-h` and `--help` print its help. A mistake is one line on
stderr and exit code 2.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.names import GLOBAL_KEYS, GLOBAL_PREFIXES
from ludus_nemo_gym.overrides import parse_overrides
from ludus_nemo_gym.trees import Tree

INTERRUPTED = 130
_HELP = {"-h", "--help", "+h=true", "+help=true"}
Arguments = list[str]


def entry_point(command: Callable[[Arguments], int]) -> Callable[..., None]:
    """Turn a function from arguments to an exit code into a command's entry point."""

    def with_help(arguments: Arguments) -> int:
        if wants_help(arguments):
            print(inspect.getdoc(command))
            return 0
        return command(arguments)

    @wraps(command)
    def entry(arguments: Arguments | None = None) -> None:
        run_and_exit(with_help, sys.argv[1:] if arguments is None else arguments)

    return entry


def run_and_exit(command: Callable[[Arguments], int], arguments: Arguments) -> None:
    """Run a command and exit with its code. An error is one line, or a traceback with `--debug`."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        code = command(arguments)
        sys.stdout.flush()  # inside the try, so that a failed write is reported
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        from ludus.cli import report_error

        if debug and not isinstance(error, BrokenPipeError):
            raise
        code = report_error(error)
    sys.exit(code)


def wants_help(arguments: Arguments) -> bool:
    """Whether the arguments ask for help."""
    return not _HELP.isdisjoint(arguments)


def options(arguments: Arguments, known: set[str]) -> Tree:
    """The options of a command. An unknown option is an error."""
    for key in parse_overrides(arguments):
        if key not in known and key not in GLOBAL_KEYS and not key.startswith(GLOBAL_PREFIXES):
            raise UserError(f"there is no option {key}", did_you_mean(key, known))
    return read_config(arguments, check=False).tree


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows as columns, each as wide as its longest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_notes(notes: list[str]) -> None:
    """Print notes for the user on stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def required_text(tree: Tree, key: str) -> str:
    """An option that must be given."""
    value = tree.get(key)
    if value in (None, ""):
        raise UserError(f"{key} is missing", f"Add +{key}=VALUE")
    return str(value)


def optional_number(tree: Tree, key: str) -> int | None:
    """An option that is a number from 1 on; None if it is not given."""
    number = tree.get(key)
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and number > 0):
        return number
    raise UserError(f"{key} {number!r:.40} is not a number from 1 on", f"Example: +{key}=4")
