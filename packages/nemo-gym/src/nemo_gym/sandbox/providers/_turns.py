"""Commands that share a sandbox of Ludus, whose calls run one after the other.

NeMo Gym's code runs commands at the same time, such as an agent and a look at its progress, and cancels a command
without losing the sandbox. So a command is started in the background, and short calls wait for its end. Other commands
get their turn between these calls. Output lies in files under `/tmp` until the command ends.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from dataclasses import replace

from ludus.sandbox import ExecResult, Program, Sandbox, SandboxError
from nemo_gym.sandbox.providers._commands import OUTPUT_BYTES
from nemo_gym.sandbox.providers._shell import KILL_MARKED, script

#: A command that writes more than this to stdout or stderr is stopped.
_STOP_BYTES = 4 * OUTPUT_BYTES

#: How often and for how many seconds a call looks for the end of its command: the first call, later calls, and those
#: of a command that takes long.
_FIRST, _LATER, _LONG = ("20", "0.01"), ("10", "0.02"), ("2", "0.2")
_LONG_AFTER = 25

#: Seconds between two calls, for the calls of other commands.
_BETWEEN = 0.01

#: Seconds for one call. A sandbox that takes longer is lost.
_CALL = 60.0

#: How a call tells us that its command has not ended, or that it wrote too much. Exit codes belong to the command, so
#: these are signals. The first call has an exit code only if the command could not start.
_RUNNING, _TOO_MUCH = signal.SIGUSR1, signal.SIGUSR2

#: The exit code and the process are parts of names: an empty file can be made on a full disk.
_FUNCTIONS = f"""
running() {{ kill -s USR1 $$; }}
code() {{ for c in "$d"/code.*; do [ -e "$c" ] && code=${{c##*.}} && return 0; done; return 1; }}
ended() {{
  for p in "$d"/pid.*; do p=${{p##*.}}; done
  read -r line 2>/dev/null < "/proc/$p/stat" || return 0
  case "$line" in *") Z "*) return 0;; esac
  return 1
}}
await() {{ while [ "$n" -gt 0 ] && ! code; do n=$((n - 1)); sleep "$s" 2>/dev/null || sleep 1; done; }}
show() {{
  if [ -e "$d/out" ]; then head -c {OUTPUT_BYTES} "$d/out" && head -c {OUTPUT_BYTES} "$d/err" >&2 || running; fi
  code=137; code; rm -rf "$d"; exit "$code"
}}
"""
#: Starts a command. It reads nothing that the command can replace, because this call may last long.
_START = f"""d=$1 n=$2 s=$3
{_FUNCTIONS}
mkdir -p "$d" && echo 1 > "$d/out" && : > "$d/out" && : > "$d/err" || {{ rm -rf "$d"; exit 71; }}
new=; command -v setsid >/dev/null 2>&1 && new=setsid
{{
  shift 3
  $new "$@" </dev/null >"$d/out" 2>"$d/err"
  : > "$d/code.$?"
}} >/dev/null 2>&1 &
: > "$d/pid.$!"
await
running
"""
_WAIT = f"""d=$1 n=$2 s=$3
{_FUNCTIONS}
await
if code || ended; then show; fi
for f in out err; do [ "$(wc -c < "$d/$f")" -gt {_STOP_BYTES} ] && kill -s USR2 $$; done
running
"""
_SHOW = f"d=$1\n{_FUNCTIONS}\nshow"


async def run_in_turns(sandbox: Sandbox, program: Program) -> ExecResult:
    """Run a program beside others. If we are cancelled, the program ends and the sandbox stays."""
    name = uuid.uuid4().hex
    folder, mark = f"/tmp/.nemo-gym-{name}", f"NEMO_GYM_EXEC={name}"
    deadline = asyncio.get_running_loop().time() + program.timeout
    # the program inherits the CPU limit of this call, and may use several cores
    start = replace(
        program,
        argv=tuple(script(_START, folder, *_FIRST, *program.argv)),
        env={**program.env, "NEMO_GYM_EXEC": name},
        timeout=8 * program.timeout + 3600,
    )
    call = asyncio.create_task(_call(sandbox, start))
    try:
        result = await asyncio.shield(call)
        if result.exit_code is not None:  # the disk is full: run it alone
            return await sandbox.run(program)
        calls = 0
        while result.signal == _RUNNING:
            if asyncio.get_running_loop().time() >= deadline:
                result = replace(result, timed_out=True)
                break
            if calls:
                await asyncio.sleep(_BETWEEN)
            turn = _LONG if calls > _LONG_AFTER else _LATER
            call = asyncio.create_task(_call(sandbox, _ours(_WAIT, folder, *turn)))
            calls += 1
            result = await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.shield(_abandon(sandbox, call, folder, mark))
        raise
    if result.exit_code is not None and not (result.timed_out or result.out_of_memory or result.limit):
        return result
    await _call(sandbox, _ours(KILL_MARKED, mark))
    rest = await _call(sandbox, _ours(_SHOW, folder))
    limit = "output" if result.signal == _TOO_MUCH else result.limit
    return replace(result, stdout=rest.stdout, stderr=rest.stderr, limit=limit, signal=signal.SIGKILL, exit_code=None)


def _ours(text: str, *arguments: str) -> Program:
    """A script of our own."""
    return Program(tuple(script(text, *arguments)), timeout=_CALL / 2, output_bytes=OUTPUT_BYTES)


async def _call(sandbox: Sandbox, program: Program) -> ExecResult:
    try:
        async with asyncio.timeout(_CALL):
            return await sandbox.run(program)
    except TimeoutError as error:
        raise SandboxError(f"the sandbox did not answer within {_CALL:.0f} s") from error


async def _abandon(sandbox: Sandbox, call: asyncio.Task[ExecResult], folder: str, mark: str) -> None:
    """End a program whose result nobody waits for."""
    try:
        await call
        await _call(sandbox, _ours(KILL_MARKED, mark))
        await _call(sandbox, _ours(_SHOW, folder))
    except (SandboxError, RuntimeError):  # the sandbox is gone, and the program with it
        pass
