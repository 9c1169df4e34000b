"""The options that all programs share which train an adapter while a vLLM server generates."""

from __future__ import annotations

import argparse
from pathlib import Path

from environments import ENVIRONMENTS


def server_options(description: str, *, output: str) -> argparse.ArgumentParser:
    """A parser with the shared options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="additions")
    parser.add_argument("--model", required=True, help="the folder of transformers that the server serves")
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    parser.add_argument("--served-name", default="policy", help="the server's name of the model without an adapter")
    parser.add_argument("--ahead", type=int, default=1, help="steps that generation may be ahead; 0 waits for updates")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--groups", type=int, default=6, help="groups of each step")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=4e-5)
    parser.add_argument("--lora", type=int, default=32, metavar="RANK")
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences of one backward pass")
    parser.add_argument("--train-tasks", type=int, default=288)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(output))
    return parser
