"""The worker process: `PYTHON inside DESCRIPTOR`, with a socket to the process that started it.

This folder needs inspect-ai and nothing of Ludus, so that it runs in any Python that the evals of a user need.
"""

import sys

from ludus_inspect_worker.serving import main  # type: ignore[import-not-found]

main(int(sys.argv[1]))
