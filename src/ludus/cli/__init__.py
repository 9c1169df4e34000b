"""The command line: thin commands over the library, and one place that turns mistakes into one line.

Commands import what they need when they run, so that `ludus --help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Annotated, Any

import typer

from ludus.cli.chat import chat
from ludus.cli.collect import collect
from ludus.cli.compare import compare
from ludus.cli.envs import envs
from ludus.cli.new import new
from ludus.cli.qualify import qualify
from ludus.cli.serve import serve
from ludus.cli.show import show
from ludus.cli.status import status
from ludus.cli.verify import verify

#: Of click, which some versions of typer bring along and others have inside.
_UsageError: Any = typer.BadParameter.__base__
#: What a full disk, a quota, a limit on file sizes and a terminal that is gone say to whoever writes.
_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

app = typer.Typer(
    name="ludus",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (envs, collect, chat, new, show, verify, compare, qualify, serve, status):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        import ludus as package

        typer.echo(f"ludus {package.__version__}")
        raise typer.Exit


@app.callback()
def ludus(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Build environments for language models, collect verified rollouts, feed any trainer.

    Example: ludus collect mcqa --model local --repeats 4
    """


def main() -> None:
    """Run the command line. A mistake of the user's is one line on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = app(args=arguments or ["--help"], prog_name="ludus", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where what goes wrong can still be told
        sys.exit(code)
    except _UsageError as error:  # which typer would tell in four lines
        where = error.ctx.command_path if error.ctx is not None else f"ludus {arguments[0]}"
        what = error.format_message().rstrip(".")
        complain(f"{what}{' ' if what.endswith('?') else '. '}See {where} --help")
        sys.exit(2)
    except typer.Abort:
        complain("stopped")
        sys.exit(1)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of which typer makes exit code 1
            sys.exit(ending(end.__context__))
        raise
    except Exception as error:
        if debug and not isinstance(error, BrokenPipeError):
            raise
        sys.exit(ending(error))


def ending(error: BaseException) -> int:
    """Tell an error in one line, and return the exit code for it."""
    from ludus.errors import UserError

    if isinstance(error, BrokenPipeError):  # the reader (head, less) has seen enough
        _discard_output()
        return 141
    if isinstance(error, UserError):
        complain(str(error))
        return 2
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE and error.filename is None:
        _discard_output()
        complain(f"cannot write the output: {error.strerror}")
        return 2
    complain(f"{type(error).__name__}: {error}. This is a bug: run again with --debug to see where")
    return 70


def complain(message: str) -> None:
    """One line on stderr, in red where a person looks at it. It may quote what a server or a row said."""
    from ludus.cli.screen import clean

    line = clean(" ".join(message.split()))
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    with contextlib.suppress(OSError):  # nobody can be told then
        print(f"{red}error:{plain} {line}", file=sys.stderr)


def _discard_output() -> None:
    """Let what is still to be written to stdout vanish: Python would try again on its way out, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
