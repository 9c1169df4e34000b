"""`ludus harness`: agent programs that people already use, installed here to play rollouts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, CommandGroup, Exit, Option

if TYPE_CHECKING:
    from ludus.agents.harness.checking import HarnessReport

_Names = Annotated[list[str], Argument(metavar="NAME...", help="Names of ludus harness list, or YAML files.")]
_Json = Annotated[bool, Option("--json", help="Print JSON.")]


@CommandGroup
def harness() -> None:
    """Install and check agent programs such as Codex.

    Example: ludus harness install pi

    Example: ludus collect terminal --set agent.type=harness --set agent.name=pi --model openai:NAME
    """


@harness.command
def list_(json_: _Json = False) -> None:
    """List the declared programs. Installed ones are marked.

    Example: ludus harness list
    """
    from rich.table import Table

    from ludus.agents.harness.installing import survey
    from ludus.cli.screen import print_unbroken, safe_json, stdout_console, text

    rows = survey()
    if json_:
        print(safe_json(rows))
        return
    table = Table("name", "version", "speaks", "from", "installed", "about", box=None)
    for row in rows:
        installed = f"{row['bytes'] >> 20:,} MB" if row["installed"] else "no"
        cells = [row["name"], row["version"], row["dialect"], row["package"], installed, row["about"]]
        table.add_row(*map(text, cells))
    print_unbroken(stdout_console(), table)


@harness.command
def install(names: _Names) -> None:
    """Install programs into the cache, each once. Rollouts only read them.

    Example: ludus harness install codex claude-code
    """
    from ludus.agents.harness.declaration import read_declaration
    from ludus.agents.harness.installing import install as install_program
    from ludus.agents.harness.installing import installation
    from ludus.sandbox.building import size_of

    for declaration in [read_declaration(name) for name in names]:
        label, ready = declaration.label, installation(declaration)
        if ready is None:
            with _waiting(f"installing {label}") as progress:
                ready = install_program(declaration, progress)
        print(f"{label} is installed: {ready.folder}, {size_of(ready.folder) >> 20:,} MB")


@contextmanager
def _waiting(what: str) -> Iterator[Callable[[float], None]]:
    """Show the seconds so far in one line of a terminal; elsewhere, say once what happens."""
    live = sys.stderr.isatty()
    print(what, end="" if live else "\n", file=sys.stderr, flush=True)
    try:
        yield lambda seconds: print(f"\r{what}: {seconds:.0f} s", end="", file=sys.stderr, flush=True) if live else None
    finally:
        if live:
            print(file=sys.stderr)


@harness.command
def check(
    name: Annotated[str, Argument(metavar="NAME", help="A name of ludus harness list, or a YAML file.")],
    json_: _Json = False,
) -> None:
    """Let a program play one rollout with a scripted model.

    It plays in a sandbox. The model calls that it makes are shown.

    The exit code is 1 if the program does not call the model, run a command and end, or if its calls do not continue
    each other as one training sequence.

    Example: ludus harness check codex
    """
    from dataclasses import asdict

    from ludus.agents.harness.checking import COMMANDS, ROW, checked_environment, report_on
    from ludus.agents.harness.declaration import read_declaration
    from ludus.agents.harness.installing import require
    from ludus.agents.harness.policy import ShellPolicy
    from ludus.api import collect
    from ludus.cli.screen import safe_json

    declaration = read_declaration(name)
    require(declaration, name)
    model = ShellPolicy(declaration, COMMANDS)
    run = collect(checked_environment(name), model=model, input=[ROW])
    report = report_on(run.rollouts[0], declaration, model.asked)
    if json_:
        answers = {question: {"passed": good, "why": why} for question, (good, why) in report.answers.items()}
        print(safe_json({**asdict(report), "answers": answers, "passed": report.passed}))
    else:
        _show(report)
    if not report.passed:
        raise Exit(1)


@harness.command
def remove(names: _Names) -> None:
    """Remove installed programs from the cache.

    Example: ludus harness remove codex
    """
    from ludus.agents.harness.declaration import read_declaration
    from ludus.agents.harness.installing import uninstall

    for declaration in [read_declaration(name) for name in names]:
        gone = uninstall(declaration)
        print(f"{declaration.label} is removed" if gone else f"{declaration.label} was not installed")


def _show(report: HarnessReport) -> None:
    from rich.table import Table

    from ludus.cli.screen import print_unbroken, stdout_console, text

    console = stdout_console()
    verdict = "passed" if report.passed else "FAILED"
    title = text(f"{report.harness}: {verdict} in {report.seconds:.1f} s")
    table = Table("question", "", "answer", title=title, title_justify="left", box=None)
    for question, (good, why) in report.answers.items():
        table.add_row(text(question), text("yes", "green") if good else text("NO", "red"), text(why))
    print_unbroken(console, table)
    threads = Table("thread", "kind", "calls", "items", "tools", "characters", "sequences", box=None)
    for thread in report.threads:
        numbers = (thread.calls, thread.items, thread.tools, thread.characters, thread.sequences)
        threads.add_row(text(thread.thread), text(thread.kind), *(f"{number:,}" for number in numbers))
    if report.threads:
        console.print()
        print_unbroken(console, threads)
