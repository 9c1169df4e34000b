"""Tokens a second of the in-process `transformers` model against `model.generate`, on the same prompts.

python benchmarks/generation.py --batch 16 64
python benchmarks/generation.py --size 135M --device cuda --prompts 256 --batch 64 256

Lengths are mixed: each answer ends where its own limit says, as if it had drawn an end token there. `generate` decodes
batch after batch, each until its longest answer ends; only tokens before an answer's limit count. Both sample at
temperature 1. On a CPU the seconds are those of the CPU. The weights are random, in the shape of a Llama of 30 or 135
million (that of SmolLM2): speed does not depend on what they say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from typing import Any

import torch
import transformers
from ludus_transformers.model import TransformersModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ludus.model import Request

SIZES: dict[str, dict[str, int]] = {
    "30M": {
        "vocab_size": 32_000,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    "135M": {
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
}


def clock(device: str) -> float:
    """Seconds of the CPU where the model runs on one, so that other programs count little; else of the wall."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def weights(size: str, device: str, dtype: str) -> tuple[Any, Any]:
    """A Llama with random weights and a tokenizer of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({word: n for n, word in enumerate([*alphabet, "<end>"])}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    config = transformers.LlamaConfig(**SIZES[size], bos_token_id=None, eos_token_id=None, pad_token_id=None)
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(device, getattr(torch, dtype)).eval(), tokenizer


def workload(count: int, longest: int, same: bool) -> list[tuple[str, int]]:
    """Prompts with the lengths of their answers: most are short, some reach the limit."""
    drawn = random.Random(0)
    lengths = [longest if same else min(longest, 1 + int(drawn.expovariate(3 / longest))) for _ in range(count)]
    return [("tell me about number " + str(n) * drawn.randint(1, 12), length) for n, length in enumerate(lengths)]


def plain(model: Any, tokenizer: Any, work: list[tuple[str, int]], batch: int) -> float:
    """Seconds of `generate`, batch after batch in the order of the prompts."""
    began = clock(model.device.type)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    for start in range(0, len(work), batch):
        part = work[start : start + batch]
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
            for text, _ in part
        ]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        inputs.pop("token_type_ids", None)
        longest = max(length for _, length in part)
        with torch.no_grad():
            made = model.generate(
                **inputs, do_sample=True, max_new_tokens=longest, min_new_tokens=longest, pad_token_id=0, top_k=0
            )
        tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :])
    return clock(model.device.type) - began


async def ours(model: Any, tokenizer: Any, work: list[tuple[str, int]], batch: int) -> float:
    """Seconds of the in-process model with all prompts waiting at once."""
    config = TransformersModel.Config(max_batch=batch)
    async with TransformersModel(model, tokenizer, config=config) as policy:
        policy._answers.ends = set()  # an answer ends at its limit and nowhere else, as with generate
        await asyncio.gather(*(policy.respond(Request("warm up", max_output_tokens=2, seed=n)) for n in range(batch)))
        await asyncio.gather(*(policy.respond(Request(t, max_output_tokens=n, seed=1)) for t, n in work[:batch]))
        began = clock(model.device.type)
        asked = (policy.respond(Request(text, max_output_tokens=n, seed=n)) for text, n in work)
        answers = await asyncio.gather(*asked)
        seconds = clock(model.device.type) - began
    assert sum(answer.usage["output_tokens"] for answer in answers) == sum(length for _, length in work)
    return seconds


def main() -> None:
    """Print one JSON line for each batch size and kind of lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="30M")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--longest", type=int, default=64)
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--rounds", type=int, default=2)
    flags = parser.parse_args()
    model, tokenizer = weights(flags.size, flags.device, flags.dtype)
    for batch in flags.batch:
        for same in (True, False):
            work = workload(flags.prompts, flags.longest, same)
            tokens = sum(length for _, length in work)
            found: dict[str, list[float]] = {"generate": [], "ours": []}
            plain(model, tokenizer, work[:batch], batch)
            for _ in range(flags.rounds):
                found["generate"].append(plain(model, tokenizer, work, batch))
                found["ours"].append(asyncio.run(ours(model, tokenizer, work, batch)))
            speed = {name: round(tokens / min(seconds), 1) for name, seconds in found.items()}
            kind = "equal" if same else "mixed"
            print(
                json.dumps(
                    {"batch": batch, "lengths": kind, **speed, "ratio": round(speed["ours"] / speed["generate"], 2)}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
