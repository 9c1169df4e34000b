"""Two endpoints, one of which is killed during the run: does any rollout fail?

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
    with ExitStack() as survivor, ExitStack() as victim:
        urls = [stack.enter_context(stub_server(turns=1, delay=0.05)) for stack in (survivor, victim)]
        words = ["--url", ",".join(urls), "--rollouts", str(ROLLOUTS), "--concurrency", "64"]
        product = [sys.executable, str(Path(__file__).with_name("product.py")), *words]
        process = subprocess.Popen(product, stdout=subprocess.PIPE, text=True)
        time.sleep(2.0)  # about a third of the run
        victim.close()
        process.communicate()
        # product.py exits with an error unless every rollout completed
        print(json.dumps({"failed_runs": int(process.returncode != 0)}))


if __name__ == "__main__":
    main()
