"""Rollouts and sampled tokens a second of a server and of the same weights in this process, on the training examples.

    python benchmarks/in_process.py vllm:http://127.0.0.1:8000/v1#policy FOLDER --rollouts 512

Both play the same tasks at temperature 1 with tokens recorded, the model in this process in bf16 with `--max-batch`
requests at a time. A first, small collection of each warms it up and is not counted.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ludus_transformers.loading import load
from ludus_transformers.model import TransformersModel

import ludus
from ludus.models import open_model

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "train_grpo"))

from environments import ENVIRONMENTS


def play(name: str, model: Any, rollouts: int) -> dict[str, float]:
    """One collection of an environment."""
    environment, make_rows, settings = ENVIRONMENTS[name]
    rows = make_rows(rollouts, 0)
    began = time.perf_counter()
    run = ludus.collect(environment, model=model, input=rows, settings=settings, tokens=True, concurrency=rollouts)
    seconds = time.perf_counter() - began
    written = sum(len(call["generated_ids"]) for rollout in run.rollouts for call in rollout.calls)
    return {
        "rollouts": len(run.rollouts),
        "failed": sum(rollout.error is not None for rollout in run.rollouts),
        "rollouts_a_second": round(len(run.rollouts) / seconds, 1),
        "tokens_a_second": round(written / seconds),
    }


def main() -> None:
    """Play each environment both ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("server", help="vllm:URL#NAME")
    parser.add_argument("folder", help="the same weights, for transformers")
    parser.add_argument("--environments", nargs="*", default=["sort_numbers", "additions"])
    parser.add_argument("--rollouts", type=int, default=512)
    parser.add_argument("--max-batch", type=int, default=256)
    options = parser.parse_args()
    weights, tokenizer = load(options.folder, None, "bfloat16", "auto")
    config = TransformersModel.Config(max_batch=options.max_batch, temperature=1.0)
    report: dict[str, Any] = {}
    for name in options.environments:
        for way in ("server", "in_process"):
            for rollouts in (16, options.rollouts):
                model = (
                    open_model(options.server, {"temperature": 1.0, "logprobs": "sampled"})
                    if way == "server"
                    else TransformersModel(weights, tokenizer, config=config)
                )
                report.setdefault(name, {})[way] = play(name, model, rollouts)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
