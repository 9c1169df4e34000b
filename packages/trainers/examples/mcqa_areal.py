"""Train with AReaL on multiple-choice questions.

python packages/trainers/examples/mcqa_areal.py      # shows an item of the data
python -m areal.infra.launcher.local packages/trainers/examples/mcqa_areal.py --config grpo.yaml   # AReaL's own
"""

import sys

from ludus_trainers.prompts import areal_rows


def train() -> None:
    from areal import PPOTrainer
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from areal.utils.hf_utils import load_hf_tokenizer
    from datasets import Dataset
    from ludus_trainers.areal import LudusWorkflow

    config, _ = load_expr_config(sys.argv[1:], GRPOConfig)
    data = Dataset.from_list(areal_rows("mcqa"))
    workflow = LudusWorkflow("mcqa", tokenizer=load_hf_tokenizer(config.tokenizer_path), gconfig=config.gconfig)
    with PPOTrainer(config, train_dataset=data) as trainer:
        trainer.train(workflow=workflow)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train()
    else:
        print(areal_rows("mcqa")[0])
