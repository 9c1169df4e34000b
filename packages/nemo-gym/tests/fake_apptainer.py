#!/usr/bin/env python3
"""Stands in for `apptainer`: instances are files of a folder, and their commands run on this machine."""

import json
import os
import sys
from pathlib import Path

STATE = Path(os.environ["FAKE_APPTAINER"])
PREFIX = "APPTAINERENV_"


def main(*words):
    with open(STATE / "log", "a") as log:
        print(json.dumps(words), file=log)
    if words[:2] == ("instance", "start"):
        if words[-2].endswith("missing"):
            sys.exit("FATAL: could not open image")
        (STATE / words[-1]).touch()
    elif words[:2] == ("instance", "stop"):
        if not (STATE / words[-1]).exists():
            sys.exit(f"FATAL: no instance found: {words[-1]}")
        (STATE / words[-1]).unlink()
    elif words[:2] == ("instance", "list"):
        print(json.dumps({"instances": [{"instance": words[-1]}] if (STATE / words[-1]).exists() else None}))
    elif words[0] == "exec":
        place = next(number for number, word in enumerate(words) if word.startswith("instance://"))
        env = {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}
        os.chdir(words[words.index("--pwd") + 1])
        os.execvpe(words[place + 1], words[place + 1 :], {"PATH": os.environ["PATH"], **env})


main(*sys.argv[1:])
