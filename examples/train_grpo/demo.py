"""`make train-demo`: train the micro model, then a control with permuted rewards, and draw both in one picture.

python examples/train_grpo/demo.py --output runs/train-demo
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plotting import plot
from train import main as train


def main() -> None:
    """Run both, with progress."""
    parser = argparse.ArgumentParser(description="Train the micro model and a control, and draw both.")
    parser.add_argument("--output", type=Path, default=Path("runs/train-demo"))
    parser.add_argument("--steps", type=int, default=220)
    options = parser.parse_args()
    results = []
    for name, more in (("trained", []), ("control", ["--control"])):
        print(f"{name}: {options.steps} steps of GRPO with a micro model on the CPU")
        results.append(train(["--output", str(options.output / name), "--steps", str(options.steps), *more]))
    picture = plot(results, options.output / "curves.png")
    for result in results:
        first, last = result["evaluations"][0], result["evaluations"][-1]
        kind = "control" if result["options"]["control"] else "trained"
        print(f"{kind}: {first['exact']:.0%} -> {last['exact']:.0%} of the held-out tasks right")
    print(f"the picture is {picture}" if picture else "no picture: pip install matplotlib")


if __name__ == "__main__":
    main()
