"""Two endpoints, one of which dies in the middle: how many rollouts fail while the other lives.

python benchmarks/dying_endpoint.py
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from measure import stub_server

ROLLOUTS = 2000


def main() -> None:
    with ExitStack() as lives, ExitStack() as dies:
        urls = [stack.enter_context(stub_server(turns=1, delay=0.05)) for stack in (lives, dies)]
        words = ["--url", ",".join(urls), "--rollouts", str(ROLLOUTS), "--concurrency", "64"]
        product = [sys.executable, str(Path(__file__).with_name("product.py")), *words]
        process = subprocess.Popen(product, stdout=subprocess.PIPE, text=True)
        time.sleep(2.0)  # a third of the way
        dies.close()
        process.communicate()
        # product.py ends with an error unless every rollout completed
        print(json.dumps({"failed_runs": int(process.returncode != 0)}))


if __name__ == "__main__":
    main()
