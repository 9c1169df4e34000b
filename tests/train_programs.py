"""Runs the programs of examples/train_grpo, each forked from one process that has imported TRL.

with Programs() as programs:
    done = programs.run("offline.py", "--output", str(folder))

That import takes 8 s of processor time, which is more than a third of what a program with the micro model takes.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "train_grpo"


class Programs:
    """The process that programs are forked from."""

    def __enter__(self) -> Programs:
        variables = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | variables
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()

    def run(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = [str(EXAMPLES / script), *options]
        with tempfile.TemporaryDirectory() as folder:
            self._process.stdin.write(json.dumps([folder, *command]) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            output, errors = (Path(folder, name).read_text(encoding="utf-8") for name in ("output", "errors"))
        return subprocess.CompletedProcess(command, code, output, errors)


def main() -> None:
    """Fork a program for every line of standard input: the folder of its output, its path, its options."""
    from trl import DPOTrainer, GRPOTrainer, RewardTrainer, SFTTrainer  # noqa: F401

    for line in sys.stdin:
        folder, *command = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for number, name in ((1, "output"), (2, "errors")):
                os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), number)
            sys.argv = command
            runpy.run_path(command[0], run_name="__main__")
            return
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
