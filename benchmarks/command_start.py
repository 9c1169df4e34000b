"""What a short command costs before it does anything: `python benchmarks/command_start.py [RUN]` prints CPU seconds.

Each command runs in turn with a bare Python, several rounds; the least of each is reported, and how many bare starts of
Python it is worth. The least hardly depends on what else the machine does, and the ratio even less.
"""

import json
import resource
import subprocess
import sys

ROUNDS = 12
RUN = sys.argv[1] if len(sys.argv) > 1 else None

COMMANDS = {
    "python": ["-c", "pass"],
    "ludus --help": ["-m", "ludus", "--help"],
    "ludus show --help": ["-m", "ludus", "show", "--help"],
    "ludus collect --help": ["-m", "ludus", "collect", "--help"],
    **({"ludus show RUN": ["-m", "ludus", "show", RUN]} if RUN is not None else {}),
}


def cpu_s(words: list[str]) -> float:
    """The CPU time of one run of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    least = {name: min(cpu_s(words) for _ in range(2)) for name, words in COMMANDS.items()}
    for _ in range(ROUNDS):
        least = {name: min(least[name], cpu_s(words)) for name, words in COMMANDS.items()}
    report = {
        name: {"cpu_s": round(value, 3), "pythons": round(value / least["python"], 1)} for name, value in least.items()
    }
    print(json.dumps(report, indent=1))
