"""Exact tokens on a real server: sequences of a rollout, the ids that the server read, and what ids cost.

vllm serve MODEL --served-model-name policy --port 8000 --enable-auto-tool-choice --tool-call-parser hermes \
    --logprobs-mode processed_logprobs --enable-scale-out
python benchmarks/exact_tokens.py vllm:http://127.0.0.1:8000/v1#policy --rollouts 160
python -m sglang.launch_server --model-path MODEL --served-model-name policy --port 8001 --tool-call-parser qwen
python benchmarks/exact_tokens.py sglang:http://127.0.0.1:8001/v1#policy --rollouts 160

(vLLM before 0.30 has its routes for ids open, and does not know `--enable-scale-out`.)

Each environment is played with ids and with chat in turns (`--rounds`), with the same seeds; the better round of each
counts. Then the whole sequences of some rollouts are sent to the server as prompts (`/v1/completions` with
`prompt_logprobs` of vLLM, `/generate` of SGLang): it must say that it read the same ids, and the log probabilities that
it computes for the ids of the policy must agree with those that were recorded. `--recompute FOLDER` compares them with
those of `transformers` too, which reads the same weights from that folder.
"""

import argparse
import json
import math
import time
import urllib.request
from pathlib import Path
from typing import Any

import ludus
from ludus.models import open_model
from ludus.train.rows import rows_in

ENVIRONMENTS = (
    "example_session_state_mgmt",
    "example_multi_step",
    "workplace_assistant",
    "example_single_tool_call",
    "math_advanced_calculations",
    "blackjack",
    "example_multi_turn_gymnasium",
    "conversational_tool_use_simulation",
    "user_modeling",
    "mcqa",
)
LONGEST = 8_000  # ids of a sequence that the server can still read as a prompt, with --max-model-len 8192
SETTINGS = {"conversational_tool_use_simulation": {"resources.enable_llm_judge": False}}


def play(name: str, options: argparse.Namespace, history: str) -> dict[str, Any]:
    """Play an environment once: its rollouts, and rollouts and sampled tokens a second."""
    settings = {"history": history, "temperature": 1.0, "logprobs": "sampled"}
    if options.max_output_tokens:
        settings["max_output_tokens"] = options.max_output_tokens
    own = SETTINGS.get(name)
    repeats = math.ceil(options.rollouts / max(1, len(rows_in(name))))
    began = time.perf_counter()
    run = ludus.collect(
        name,
        model=open_model(options.model, settings),
        tokens=True,
        repeats=repeats,
        concurrency=options.concurrency,
        settings=own,
    )
    seconds = time.perf_counter() - began
    written = sum(len(call.get("generated_ids", ())) for rollout in run.rollouts for call in rollout.calls)
    return {"run": run, "rate": len(run.rollouts) / seconds, "tokens": written / seconds}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask a route of the server."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def read_by_vllm(url: str, name: str, ids: list[int]) -> tuple[list[int], list[float | None]]:
    """The ids that vLLM read, and its log probability of each."""
    body = {"model": name, "prompt": ids, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    choice = post(f"{url}/completions", {**body, "return_token_ids": True})["choices"][0]
    read = choice["prompt_token_ids"]
    entries = zip(read, choice["prompt_logprobs"], strict=True)
    return read, [None if entry is None else entry[str(id)]["logprob"] for id, entry in entries]


def read_by_sglang(url: str, _name: str, ids: list[int]) -> tuple[list[int], list[float | None]]:
    """The ids that SGLang read, and its log probability of each."""
    sampling = {"max_new_tokens": 1, "temperature": 1.0}
    body = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}
    entries = post(f"{url.removesuffix('/v1')}/generate", body)["meta_info"]["input_token_logprobs"]
    return [entry[1] for entry in entries], [entry[0] for entry in entries]


def check_on_server(model: str, rollouts: list[Any], most: int) -> dict[str, Any]:
    """Whether the server reads the ids of rollouts as they are, and how far its log probabilities are from the recorded
    ones on average."""
    kind, _, address = model.partition(":")
    url, _, name = address.partition("#")
    same, differences = True, []
    for rollout in rollouts[:most]:
        for sequence in rollout.sequences():
            if len(sequence.ids) >= LONGEST:
                continue
            read, computed = (read_by_sglang if kind == "sglang" else read_by_vllm)(url, name, sequence.ids)
            same = same and read == sequence.ids
            differences += [
                abs(logprob - recorded)
                for logprob, mask, recorded in zip(computed, sequence.mask, sequence.logprobs, strict=True)
                if mask and logprob is not None
            ]
    mean = sum(differences) / len(differences) if differences else None
    return {"ids_equal": same, "tokens_compared": len(differences), "mean_logprob_difference": mean}


def check_in_transformers(weights: Any, rollouts: list[Any], most: int) -> dict[str, Any]:
    """How far the log probabilities of `transformers` are from the recorded ones on average."""
    import torch

    differences: list[float] = []
    for rollout in rollouts[:most]:
        for sequence in rollout.sequences():
            ids = torch.tensor([sequence.ids], device=weights.device)
            with torch.no_grad():
                logits = weights(ids).logits[0, :-1].float()
            computed = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist()
            differences += [
                abs(logprob - recorded)
                for logprob, mask, recorded in zip(computed, sequence.mask[1:], sequence.logprobs[1:], strict=True)
                if mask
            ]
    mean = sum(differences) / len(differences) if differences else None
    return {"rollouts": len(rollouts[:most]), "tokens_compared": len(differences), "mean_logprob_difference": mean}


def measured(name: str, options: argparse.Namespace, weights: Any) -> dict[str, Any]:
    """One line of the table."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for history in ("auto", "chat"):
            found = play(name, options, history)
            if history not in best or found["rate"] > best[history]["rate"]:
                best[history] = found
    line: dict[str, Any] = {"environment": name}
    for way, history in (("ids", "auto"), ("chat", "chat")):
        rollouts = best[history]["run"].rollouts
        trained = [rollout for rollout in rollouts if rollout.error is None and rollout.calls]
        counts = [len(list(rollout.sequences())) for rollout in trained if _has_tokens(rollout)]
        line[way] = {
            "rollouts": len(rollouts),
            "failed": sum(rollout.error is not None for rollout in rollouts),
            "without_tokens": len(trained) - len(counts),
            "calls": sum(len(rollout.calls) for rollout in rollouts) / max(1, len(rollouts)),
            "one_sequence": sum(count == 1 for count in counts),
            "sequences_per_rollout": sum(counts) / max(1, len(counts)),
            "most_sequences": max(counts, default=0),
            "rollouts_a_second": best[history]["rate"],
            "tokens_a_second": best[history]["tokens"],
            "broken": best[history]["run"].metrics["broken_sequences"],
            "failures": best[history]["run"].metrics["failures"],
        }
    good = [rollout for rollout in best["auto"]["run"].rollouts if rollout.error is None and _has_tokens(rollout)]
    line["server"] = check_on_server(options.model, good, options.checked)
    if weights is not None:
        line["transformers"] = check_in_transformers(weights, good, options.checked)
    line["speed"] = line["ids"]["rollouts_a_second"] / line["chat"]["rollouts_a_second"]
    line["token_speed"] = line["ids"]["tokens_a_second"] / max(1e-9, line["chat"]["tokens_a_second"])
    return line


def _has_tokens(rollout: Any) -> bool:
    return bool(rollout.calls) and all("prefix" in call for call in rollout.calls)


def main() -> None:
    """Measure the environments, one line each."""
    parser = argparse.ArgumentParser(description="Exact tokens on a real server.")
    parser.add_argument("model", help="vllm:URL#NAME or sglang:URL#NAME")
    parser.add_argument("--environments", nargs="*", default=ENVIRONMENTS)
    parser.add_argument("--rollouts", type=int, default=160, help="rollouts of each environment, at least")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--max-output-tokens", type=int, default=None, help="for rows without their own")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--checked", type=int, default=20, help="rollouts whose ids are sent to the server again")
    parser.add_argument("--recompute", metavar="FOLDER", default=None, help="compare with transformers, on a GPU")
    parser.add_argument("--output", type=Path, default=None, help="write all figures as JSON")
    options = parser.parse_args()
    weights = None
    if options.recompute is not None:
        from transformers import AutoModelForCausalLM

        weights = AutoModelForCausalLM.from_pretrained(options.recompute, dtype="bfloat16").to("cuda").eval()
    lines = []
    head = ("environment", "rollouts", "failed", "calls", "sequences with ids", "with chat", "ids equal", "logprobs")
    print(" | ".join((*head, "a second with ids", "with chat", "ratio", "ratio of tokens")), flush=True)
    for name in options.environments:
        line = measured(name, options, weights)
        lines.append(line)
        ids, chat, server = line["ids"], line["chat"], line["server"]
        off = server["mean_logprob_difference"]
        shown = (
            name,
            ids["rollouts"],
            ids["failed"],
            f"{ids['calls']:.1f}",
            f"{ids['sequences_per_rollout']:.3f} (at most {ids['most_sequences']})",
            f"{chat['sequences_per_rollout']:.3f} (at most {chat['most_sequences']})",
            "yes" if server["ids_equal"] else "NO",
            "-" if off is None else f"{off:.4f}",
            f"{ids['rollouts_a_second']:.1f}",
            f"{chat['rollouts_a_second']:.1f}",
            f"{line['speed']:.2f}",
            f"{line['token_speed']:.2f}",
        )
        print(" | ".join(map(str, shown)), line.get("transformers", ""), flush=True)
        if options.output is not None:
            options.output.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
