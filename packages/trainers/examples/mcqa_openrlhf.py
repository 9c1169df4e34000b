"""OpenRLHF's agent file for multiple-choice questions. Run it to write the prompts and see the command to train.

python packages/trainers/examples/mcqa_openrlhf.py openrlhf-run
"""

import json
import sys
from pathlib import Path


def main(folder: Path) -> None:
    from ludus_trainers.prompts import openrlhf_rows

    folder.mkdir(parents=True, exist_ok=True)
    rows = openrlhf_rows("mcqa")
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = f"""python -m openrlhf.cli.train_ppo_ray --agent_func_path {Path(__file__).absolute()} \\
    --prompt_data {folder}/prompts.jsonl --input_key input --label_key label --apply_chat_template \\
    --pretrain Qwen/Qwen3-0.6B --advantage_estimator group_norm --n_samples_per_prompt 8 --async_train"""
    print(f"{len(rows)} prompts. Train with:\n{command}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "openrlhf-run").absolute())
else:
    from ludus_trainers.openrlhf import executor_class

    AgentExecutor = executor_class("mcqa")
