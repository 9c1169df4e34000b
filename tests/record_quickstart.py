"""Records the commands of the quickstart in a terminal of 90 columns and 24 lines.

    python tests/record_quickstart.py            # runs docs/get-started/index.md, writes both files into docs/images
    python tests/record_quickstart.py --draw     # only draws the recording again

`quickstart.cast` (asciicast v2) is the recording, `quickstart.svg` the moving picture of it. The commands and their
output are real and need the embedded model. Only the times are changed: commands are typed at the speed of a person,
waits are cut to a second, and long outputs roll by slowly enough to be read.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from terminal_svg import draw

DOCS = Path(__file__).parent.parent / "docs"
CAST, PICTURE = DOCS / "images" / "quickstart.cast", DOCS / "images" / "quickstart.svg"
TITLE = "A terminal: four rollouts are collected, listed and read, and an environment is played by hand"
COLUMNS, ROWS = 90, 24
KEY, ENTER, READ, LINE = 0.05, 0.4, 3.0, 0.2  #: seconds: a key, before Enter, after an output, a line of an output
LONGEST_WAIT, LONGEST_OUTPUT, LONGEST = 1.0, 5.0, 60.0
MAX_BYTES = 200_000
UP = "\x1b[1A"  #: the cursor goes up: something is drawn again

Event = tuple[float, str, str]


def commands() -> list[str]:
    """The commands of the quickstart after its installation, without their comments."""
    page = (DOCS / "get-started" / "index.md").read_text().partition("## Collect")[2]
    lines = "\n".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)).splitlines()
    return [re.sub(r"\s+# .*", "", line) for line in lines if line]


def run(command: str, folder: Path) -> list[tuple[float, str]]:
    """What a command writes to its terminal: pieces, and the seconds after its start at which they came."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLORTERM": "", "LANG": "C.UTF-8"}
    child = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    pieces, start, unread = [], time.monotonic(), b""
    while data := _read(ours):
        text = (unread + data).decode(errors="ignore")
        unread = (unread + data)[len(text.encode()) :]
        pieces.append((time.monotonic() - start, text))
    os.close(ours)
    if child.wait():
        sys.exit(f"error: {command!r} ended with {child.returncode}: {''.join(text for _, text in pieces)[-500:]}")
    return pieces


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def paced(pieces: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """What to write, with the seconds to wait before each part: long waits made short, long outputs line by line.

    A progress bar that is drawn again without a change is a wait.
    """
    parts: list[tuple[float, str]] = []
    for when, text in pieces:
        if parts and not text.startswith("\r"):
            parts[-1] = (parts[-1][0], parts[-1][1] + text)
        else:
            parts.append((when, text))
    before, last, found = 0.0, "", []
    for when, text in parts:
        if text == last:
            continue
        found.append((min(when - before, LONGEST_WAIT), text))
        before, last = when, text
    factor = min(1.0, LONGEST_OUTPUT / max(sum(wait for wait, _ in found), LONGEST_OUTPUT))
    lines = []
    for wait, text in found:
        first, *rest = [text] if UP in text else re.findall(r"[^\n]*\n|[^\n]+", text)
        lines += [(wait * factor, first), *((LINE, line) for line in rest)]
    return lines


def record() -> list[Event]:
    """The events of the whole session."""
    events: list[Event] = []
    now = 0.0

    def write(wait: float, text: str) -> None:
        nonlocal now
        now += wait
        events.append((round(now, 2), "o", text))

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "bin").mkdir()
        program = folder / "bin" / "ludus"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ludus "$@"\n')
        program.chmod(0o755)
        for command in commands():
            print(f"$ {command}", flush=True)
            events.append((round(now, 2), "m", command))
            write(0.0, "\x1b[1;32m$\x1b[0m ")
            for key in command:
                write(KEY, key)
            write(ENTER, "\r\n")
            for wait, text in paced(run(command, folder)):
                write(wait, text)
            now += READ
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw the recording again, run nothing")
    if not parser.parse_args().draw:
        events = record()
        head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": TITLE}
        CAST.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (head, *events)))
    picture = draw(CAST.read_text(), TITLE)
    seconds = json.loads(CAST.read_text().splitlines()[-1])[0]
    if len(picture.encode()) > MAX_BYTES or seconds > LONGEST:
        sys.exit(
            f"error: the picture has {len(picture.encode()):,} bytes and {seconds:.0f} s: make the session shorter"
        )
    PICTURE.write_text(picture)
    print(f"{PICTURE}: {len(picture.encode()):,} bytes, {seconds:.0f} s")


if __name__ == "__main__":
    main()
