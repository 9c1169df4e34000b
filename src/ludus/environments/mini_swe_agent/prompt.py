"""What the model is told. Rows without an `input`, as SWE-bench and SWE-Gym publish them, get this prompt."""

from __future__ import annotations

from typing import Any

_PROMPT = """\
The repository in the folder {folder} has the problem that is described below. Change its source files so that the \
problem is gone and everything else works as before.

<problem>
{problem}
</problem>

Work with the tool `bash`. Every call runs in a new shell that starts in {folder}; files stay as you leave them, and \
there is no network. Look at the files first, reproduce the problem, change the code, and check that it works. Hidden \
tests decide. Your changes of tests and of settings of test tools are discarded. When you are done, answer with one \
sentence and without a call."""

_FOR_PROGRAMS = """\
The repository in this folder has the problem that is described below. Change its source files so that the problem is \
gone and everything else works as before. Hidden tests decide; your changes of tests are discarded.

{problem}"""


def program_prompt(problem: str) -> str:
    """The prompt for a program that plays as the agent, with tools of its own."""
    return _FOR_PROGRAMS.format(problem=problem.strip())


def prompt(problem: str, folder: str) -> list[dict[str, Any]]:
    """The prompt as items of a request."""
    return [{"role": "user", "content": _PROMPT.format(problem=problem.strip(), folder=folder)}]
