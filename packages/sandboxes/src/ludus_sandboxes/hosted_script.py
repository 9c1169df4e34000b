"""The shell script that runs one program in a hosted sandbox, and the report that the script prints.

A service runs a command and returns what the command printed, some as text, some with stdout and stderr mixed. The
script makes all services alike: it keeps stdout and stderr apart, stops the program at its time limit, cuts long
output, and prints one report in base64. It needs `sh`, `setsid` and the usual small tools in the image.

The program runs as the same user as the script, and can write a report of its own or end the script. It gains nothing:
it may print and return what it likes anyway. What is no report counts as a program that failed.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from dataclasses import dataclass

from ludus.sandbox.protocol import HOME, Program, SandboxSpec

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REPORT = re.compile(rb"ludus (\d{1,3}) ([01])\no:([A-Za-z0-9+/=]*)\ne:([A-Za-z0-9+/=]*)\nend\s*")

#: A longer command does not fit into one argument of a program, and is uploaded as a file.
ARGUMENT_BYTES = 100_000

# The output goes to files that have no name any more when the program starts, so that it cannot replace them.
# Descriptors: 3 and 4 take stdout and stderr, 5 and 6 read them back, 7 and 8 say that the time is over, 9 is stdin.
_SCRIPT = """\
exec 2>/dev/null
d=$(mktemp -d) || exit 70
exec 3>"$d/o" 4>"$d/e" 7>"$d/t" 5<"$d/o" 6<"$d/e" 8<"$d/t"
rm -rf -- "$d"
exec 9<{stdin}
{remove}
(
  exec <&9 >&3 2>&4 3>&- 4>&- 5<&- 6<&- 7>&- 8<&- 9<&-
  ulimit -n {open_files} 2>/dev/null
  ulimit -f {blocks} 2>/dev/null
  cd -- {cwd} && exec setsid {program}
) &
p=$!
setsid sh -c 'sleep {seconds}; echo late >&7; kill -9 "-$1"; kill -9 "$1"' sh "$p" \
  </dev/null >/dev/null 3>&- 4>&- 5<&- 6<&- 8<&- 9<&- &
w=$!
wait "$p"
c=$?
kill -9 "-$w"
kill -9 "$w"
{leftovers}
l=0
[ -z "$(cat <&8)" ] || l=1
printf 'ludus %s %s\\no:' "$c" "$l"
{part} -c {most} <&5 | base64 | tr -d '\\n'
printf '\\ne:'
{part} -c {most} <&6 | base64 | tr -d '\\n'
printf '\\nend\\n'
"""


@dataclass(frozen=True)
class Report:
    """What the script says about the program."""

    exit_code: int
    timed_out: bool
    stdout: bytes
    stderr: bytes


def program_script(program: Program, spec: SandboxSpec, *, cwd: str, stdin: str | None, most: int) -> bytes:
    """The script for one program. `stdin` is the path of an uploaded file, which the script removes."""
    env = {"HOME": HOME, **spec.env, **program.env}
    for name in env:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r:.100} is not the name of an environment variable")
    command = shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *program.argv])
    text = _SCRIPT.format(
        stdin=shlex.quote(stdin or "/dev/null"),
        remove=f"rm -f -- {shlex.quote(stdin)}" if stdin else "",
        open_files=spec.limits.open_files,
        blocks=spec.limits.disk_mb * 2048,
        cwd=shlex.quote(cwd),
        program=command,
        seconds=f"{program.timeout:.3f}",
        leftovers="" if spec.background else 'kill -9 "-$p"',
        part="tail" if program.keep_last else "head",
        most=most + 1,
    )
    if "\0" in text:
        raise ValueError("a command cannot hold a NUL byte")
    return text.encode(errors="surrogatepass")


def piped(script: bytes) -> str:
    """A command for any shell that runs the script, in plain characters only."""
    return f"echo {base64.b64encode(script).decode()} | base64 -d | sh"


def read_report(output: bytes) -> Report | None:
    """The report in what the script printed, or None if it is no report."""
    found = _REPORT.fullmatch(output)
    if found is None:
        return None
    try:
        stdout, stderr = (base64.b64decode(part, validate=True) for part in found.groups()[2:])
    except binascii.Error:
        return None
    return Report(int(found[1]), found[2] == b"1", stdout, stderr)
