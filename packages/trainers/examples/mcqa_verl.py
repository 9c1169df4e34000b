"""Prepare verl for multiple-choice questions: Parquet rows, the file of agent loops, and the command to train.

python packages/trainers/examples/mcqa_verl.py verl-run && sh verl-run/train.sh
"""

import sys
from pathlib import Path

from ludus_trainers.verl_data import write_parquet

LOOPS = """- name: ludus
  _target_: ludus_trainers.verl.LudusAgentLoop
  environment: mcqa
  policy: {deadline: 600, replacements: 2}
"""
TRAIN = """python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_files={folder}/train.parquet data.val_files={folder}/train.parquet data.return_raw_chat=True \\
    data.max_prompt_length=1024 data.max_response_length=1024 data.train_batch_size=64 \\
    actor_rollout_ref.model.path=Qwen/Qwen3-0.6B actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.calculate_log_probs=True \\
    actor_rollout_ref.rollout.agent.agent_loop_config_path={folder}/loops.yaml
"""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    count = write_parquet(folder / "train.parquet", "mcqa")
    (folder / "loops.yaml").write_text(LOOPS)
    (folder / "train.sh").write_text(TRAIN.format(folder=folder))
    print(f"{count} rows. Train with: sh {folder}/train.sh")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "verl-run").absolute())
