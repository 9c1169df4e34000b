"""Running a Python program in a fork of this interpreter, as `python3 main.py` would."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn


def run_python(source: bytes, argv: list[str], home: str) -> NoReturn:
    """Run a program as `python3 main.py` would, then end the process."""
    import _sitebuiltins
    import builtins
    import io
    import types

    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r")), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8", "surrogateescape")
    unbuffered = io.BufferedWriter(io.FileIO(2, "w"))
    sys.stderr = io.TextIOWrapper(unbuffered, "utf-8", "backslashreplace", line_buffering=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
    sys.argv = ["main.py", *argv]
    sys.path.insert(0, home)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python sets it
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__="main.py", __builtins__=builtins)
    for name in [name for name in sys.modules if name.split(".")[0] == "ludus"]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    code = 1
    try:
        exec(compile(source, "main.py", "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException as error:
        show(error, source)
    finish(code)


def exit_code(argument: Any) -> int:
    """The exit code of `sys.exit(argument)`."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument & 0xFF
    print(argument, file=sys.stderr)
    return 1


def show(error: BaseException, source: bytes) -> None:
    """Print the traceback from the program's own first line on."""
    import linecache
    import traceback

    text = source.decode("utf-8", "replace")
    linecache.cache["main.py"] = (len(text), None, text.splitlines(True), "main.py")
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        traceback.print_exception(type(error), error, below)
    except BaseException:
        os.write(2, type(error).__name__.encode())


def finish(code: int) -> NoReturn:
    """End as the interpreter does: wait for threads, run exit handlers, flush."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
    except BaseException:
        pass
    try:
        sys.stdout.flush()
    except BaseException:
        code = code or 120
    try:
        sys.stderr.flush()
    except BaseException:
        pass
    os._exit(code)
