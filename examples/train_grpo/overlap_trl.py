"""Train with TRL's `AsyncGRPOTrainer` while the next groups are generated, with a vLLM server beside it.

As `overlap.py`, but the loss, the optimizer and the publishing of adapters are TRL's: TRL loads the adapter of version
7 into the server as `trl-policy-v7`, `AdapterPolicy` asks for it by this name, and `TrlWorker` feeds the trainer.

    VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve FOLDER --served-model-name policy \
        --enable-lora --max-lora-rank 32 --max-loras 4 --logprobs-mode processed_logprobs
    python examples/train_grpo/overlap_trl.py --model FOLDER --server http://127.0.0.1:8000 --environment additions

TRL's attention is a kernel from the Hub (`pip install kernels`); `--plain-attention` computes the same with torch,
slower. Writes metrics.json: TRL's log of each step.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from environments import ENVIRONMENTS
from learner import Server
from ludus_transformers.adapters import AdapterPolicy
from ludus_transformers.loading import library
from ludus_transformers.trl_worker import TrlWorker
from policy import options_of, write_json
from server_options import server_options

from ludus.errors import UserError
from ludus.train.policy import GroupPolicy


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = server_options("Train an adapter with TRL while a vLLM server generates.", output="runs/overlap_trl")
    parser.add_argument("--plain-attention", action="store_true", help="attention without a kernel from the Hub")
    options = parser.parse_args(arguments)
    if options.groups * options.group_size % options.micro_batch:
        parser.error(f"--micro-batch must divide the {options.groups * options.group_size} sequences of a step")
    return options


def plain_attention(query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, *_: int, **how: Any) -> Any:
    """What flash attention does for pieces of sequences laid end to end: each sees its own keys, up to itself."""
    import torch

    pieces = []
    for (start, end), (first, last) in zip(pairwise(query_ends.tolist()), pairwise(key_ends.tolist()), strict=True):
        asked = query[start:end].transpose(0, 1)
        keys, values = key[first:last].transpose(0, 1), value[first:last].transpose(0, 1)
        mask = torch.ones(asked.shape[1], keys.shape[1], dtype=torch.bool, device=query.device)
        pieces.append(
            torch.nn.functional.scaled_dot_product_attention(
                asked,
                keys,
                values,
                attn_mask=mask.tril(keys.shape[1] - asked.shape[1]),
                scale=how["softmax_scale"],
                enable_gqa=True,
            ).transpose(0, 1)
        )
    return torch.cat(pieces)


def trainer_of(options: argparse.Namespace) -> Any:
    """TRL's trainer, with a worker that plays the environment."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    environment, make_rows, settings = ENVIRONMENTS[options.environment]
    rows = make_rows(options.train_tasks, options.seed)
    samples = options.groups * options.group_size
    worker = TrlWorker(
        environment,
        model=AdapterPolicy(
            AdapterPolicy.Config(
                base_url=f"{options.server}/v1", model=options.served_name, temperature=1.0, logprobs="sampled"
            )
        ),
        policy=GroupPolicy(size=options.group_size, keep_without_signal=True, max_staleness=options.ahead),
        groups_per_step=options.groups,
        ahead=options.ahead,
        unread=samples * (options.ahead + 1),
        input=rows,
        settings=settings,
        seed=options.seed,
    )
    config = AsyncGRPOConfig(
        output_dir=str(options.output),
        vllm_server_base_url=options.server,
        max_staleness=options.ahead + 1,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        num_generations=options.group_size,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=samples // options.micro_batch,
        token_budget=0,  # a backward pass takes as many sequences as it says, not as many tokens
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        seed=options.seed,
    )
    return AsyncGRPOTrainer(
        options.model,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": str(row["responses_create_params"]["input"])} for row in rows]),
        processing_class=AutoTokenizer.from_pretrained(options.model, padding_side="left"),
        peft_config=LoraConfig(
            r=options.lora, lora_alpha=2 * options.lora, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        rollout_worker=worker,
    )


def main(arguments: list[str] | None = None) -> None:
    """Train, and write what TRL logged."""
    options = parse(arguments)
    for name in ("trl", "peft", "datasets"):
        library(name)
    Server(options.server).check()
    if not options.plain_attention and find_spec("kernels") is None:
        raise UserError("TRL's attention needs the package kernels", "pip install kernels, or use --plain-attention")
    if options.plain_attention:
        from trl.experimental.async_grpo import packing

        packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=plain_attention)
    trainer = trainer_of(options)
    began = time.perf_counter()
    trainer.train()
    log = {"seconds": time.perf_counter() - began, "rollouts": dict(trainer.rollout_worker.feed.counts)}
    write_json(
        options.output / "metrics.json", {"options": options_of(options), **log, "steps": trainer.state.log_history}
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
