#!/usr/bin/env python3
"""Stands in for `docker`: containers are files of a folder, and their commands run on this machine.

As with the real one, the end of `docker exec` does not end the command. Every call is logged.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER"])
FLAGS = {"--detach", "--rm", "--init", "--privileged", "--force", "--volumes"}


def split(words):
    """The options of a command as pairs, and its other words."""
    options, rest = [], list(words)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        if name == "--":
            break
        options.append((name, None if name in FLAGS else rest.pop(0)))
    return options, rest


def variables(options):
    pairs = [value for name, value in options if name == "--env"]
    return {pair.partition("=")[0]: pair.partition("=")[2] if "=" in pair else os.environ[pair] for pair in pairs}


def container(name):
    path = STATE / f"{name}.json"
    if not path.exists():
        sys.exit(f"Error: No such container: {name}")
    return path, json.loads(path.read_text())


def main(command, *words):
    with open(STATE / "log", "a") as log:
        print(json.dumps([command, *words]), file=log)
    options, rest = split(words)
    named = dict(options)
    if command == "run":
        if rest[0] == "missing":
            sys.exit("docker: pull access denied for missing")
        content = {"status": "running", "env": variables(options), "workdir": named.get("--workdir") or "/"}
        Path(content["workdir"]).mkdir(parents=True, exist_ok=True)
        (STATE / f"{named['--name']}.json").write_text(json.dumps(content))
    elif command == "exec":
        _, content = container(rest[0])
        env = {"PATH": os.environ["PATH"], **content["env"], **variables(options)}
        folder = named.get("--workdir") or content["workdir"]
        inside = subprocess.Popen(rest[1:], env=env, cwd=folder, start_new_session=True)
        sys.exit(inside.wait())
    elif command == "cp":
        shutil.copy(rest[0], rest[1].partition(":")[2])
    elif command == "inspect":
        print(container(rest[0])[1]["status"])
    elif command == "port":
        container(rest[0])
        print("127.0.0.1:49153\n[::1]:49153")
    elif command == "rm":
        container(rest[0])[0].unlink()
    elif command in ("pause", "unpause"):
        path, content = container(rest[0])
        path.write_text(json.dumps({**content, "status": "paused" if command == "pause" else "running"}))


main(*sys.argv[1:])
