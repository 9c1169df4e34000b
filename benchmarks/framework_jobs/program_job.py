"""mini-swe-agent without a framework: what the program itself costs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from job import answer, options, prompt, report


def main() -> None:
    given = options()
    program = str(Path(sys.executable).parent / "mini-swe-agent")
    settings = {
        "OPENAI_API_BASE": given.url,
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    }

    def play(number: int) -> tuple[int, float]:
        folder = given.output / str(number)
        folder.mkdir(parents=True)
        words = [program, "--yolo", "--model=openai/stub", f"--task={prompt(number)}", "--exit-immediately"]
        subprocess.run(
            [*words, "--output=trajectory.json"],
            cwd=folder,
            env={**os.environ, **settings},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return number, float((folder / "answer.txt").read_text().strip() == answer(number))

    with ThreadPoolExecutor(given.concurrency) as places:
        report(places.map(play, range(given.rollouts)))


if __name__ == "__main__":
    main()
