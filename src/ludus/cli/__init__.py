"""The command line: thin commands over the library, and one place that reports an error as one line.

For a fast start, commands import the library inside their functions, and only the typed command is built.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from importlib import import_module
from typing import Annotated, Any

from click.exceptions import Abort

from ludus.cli.commands import Command, CommandGroup, Exit, Option, UsageError, usage_message
from ludus.runtime.unawaited import explain_unawaited

#: The commands in the order of the help. Each is the function or the group of its name in the module of its name.
COMMANDS = tuple(
    "envs collect merge chat new show view verify compare conformance serve status doctor sandbox harness model".split()
)

#: The entry point group of commands in other packages: functions as in `ludus.cli.commands`, or groups.
_GROUP = "ludus.commands"
#: The commands in packages of ours, each with what it does and its package.
_PACKAGES = {
    "bench": ("measures rollouts a second and what limits them", "bench"),
    "browse": ("shows runs in the terminal", "browser"),
    "credit": ("estimates what every turn of a rollout was worth", "credit"),
    "profile": ("finds the tasks worth training on, and puts an environment under load", "bench"),
    "qualify": ("tests whether a verifier can be trusted", "qualify"),
    "recall": ("finds the rewards that a mended verifier would change", "qualify"),
    "data": ("converts, checks, prepares and exports datasets", "data"),
}

#: write() fails with these for a full disk, an exceeded quota, a file size limit and a closed terminal.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _Stopped(Exception):
    """Ctrl-C in a command without its own message for it."""


class _PipeClosed(Exception):
    """The reader of the output (head, less) closed the pipe. Click would end with exit code 1 and not say why."""


class _Commands(CommandGroup):
    """Says which package has a missing command, and turns what click would hide into exceptions of ours."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the words, and print the help text if they ask for it."""
        try:
            return super().make_context(*args, **settings)
        except BrokenPipeError as error:
            raise _PipeClosed from error

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None if there is none."""
        command = super().get_command(ctx, cmd_name)
        return packaged_command(cmd_name) if command is None and cmd_name in _PACKAGES else command

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Without `_Stopped`, click would exit with code 130 and no message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Stopped from error
        except BrokenPipeError as error:
            raise _PipeClosed from error


def _print_version() -> None:
    import ludus as package

    print(f"ludus {package.__version__}")
    raise Exit


def command_line(*names: str) -> CommandGroup:
    """The command line with these commands, or with all of them and those of other packages."""
    app = _Commands(ludus)
    app.context_settings = {"help_option_names": ["-h", "--help"]}
    commands = {name: _command(name) for name in names or COMMANDS}
    if not names:
        commands |= _other_commands()
    for name in sorted(commands, key=lambda name: isinstance(commands[name], CommandGroup)):  # groups stand last
        command = commands[name]
        app.add_command(command if isinstance(command, CommandGroup) else Command(command, name), name)
    return app


def _command(name: str) -> Any:
    """The function or the group of a command."""
    return packaged_command(name) if name in _PACKAGES else getattr(import_module(f"ludus.cli.{name}"), name)


def packaged_command(name: str) -> Any:
    """The command of this name in a package of ours. Raises a `UserError` with the pip command if it is missing."""
    from ludus.runtime.installed import packaged

    purpose, package = _PACKAGES[name]
    return packaged(_GROUP, name, f"ludus {name} ({purpose})", package)


def _other_commands() -> dict[str, Any]:
    """The commands of other packages by name. A broken package is reported, and hides no other command."""
    from ludus.runtime.installed import entry_points

    commands: dict[str, Any] = {}
    for entry in entry_points(_GROUP):
        try:
            if entry.name not in COMMANDS:
                commands[entry.name] = entry.load()
        except Exception as error:
            print(f"ludus {entry.name} cannot be loaded from {entry.package}: {error}", file=sys.stderr)
    return commands


def ludus(
    version: Annotated[bool, Option("--version", at_once=_print_version, help="Print the version and exit.")] = False,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Build environments for language models, collect verified rollouts, feed any trainer.

    Example: ludus collect mcqa --model local --repeats 4
    """


def main() -> None:
    """Run the command line. A user error is one line on stderr and exit code 2, Ctrl-C exit code 130."""
    explain_unawaited()
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        typed = [name for name in (*COMMANDS, *_PACKAGES) if arguments[:1] == [name]]
        code = command_line(*typed)(args=arguments or ["--help"], prog_name="ludus", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a write error can still be reported
        sys.exit(code)
    except UsageError as error:  # click would print four lines
        from ludus.errors import sentences

        command_path = error.ctx.command_path if error.ctx is not None else f"ludus {arguments[0]}"
        print_error(sentences(usage_message(error), f"See {command_path} --help"))
        sys.exit(2)
    except (_Stopped, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except Abort:
        print_error("stopped")
        sys.exit(1)
    except (_PipeClosed, BrokenPipeError):
        sys.exit(report_error(BrokenPipeError()))
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich turned it into exit code 1
            sys.exit(report_error(end.__context__))
        raise
    except Exception as error:
        if debug:
            raise
        sys.exit(report_error(error))


def report_error(error: BaseException) -> int:
    """Print an error as one line and return its exit code."""
    from ludus.errors import UserError, sentences

    if isinstance(error, BrokenPipeError):  # the reader (head, less) closed the pipe
        _discard_output()
        return 141
    if isinstance(error, UserError):
        print_error(sentences(str(error), "Add --debug to see more") if _is_of_author(error) else str(error))
        return 2
    if isinstance(error, OSError) and error.errno in _WRITE_ERRORS and error.filename is None:
        _discard_output()
        print_error(f"cannot write the output: {error.strerror}. Make room, or send it elsewhere")
        return 2
    what = f"{type(error).__name__}: {error}"
    print_error(sentences(what, "This is a bug: run again with --debug for the traceback"))
    return 70


def _is_of_author(error: BaseException | None) -> bool:
    """Whether an author's code raised this user error, or its cause."""
    from ludus.errors import AuthorError, UserError

    return isinstance(error, AuthorError) or (isinstance(error, UserError) and _is_of_author(error.__cause__))


def print_error(message: str) -> None:
    """Print one line on stderr, red on a terminal. It is cleaned: it may quote a server or a row."""
    from ludus.cli.screen import clean

    line = clean(" ".join(message.split()))
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    with contextlib.suppress(OSError):  # stderr is closed or full: there is nowhere to report it
        print(f"{red}error:{plain} {line}", file=sys.stderr)


def _discard_output() -> None:
    """Point stdout at /dev/null: Python flushes it again at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
