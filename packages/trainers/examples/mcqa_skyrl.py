"""Train with SkyRL on multiple-choice questions.

python packages/trainers/examples/mcqa_skyrl.py prepare skyrl-run   # writes train.parquet, prints the command to train
"""

import sys
from pathlib import Path

from ludus_trainers.verl_data import write_parquet


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    count = write_parquet(folder / "train.parquet", "mcqa")
    data = f"data.train_data=\"['{folder}/train.parquet']\" data.val_data=\"['{folder}/train.parquet']\""
    print(f"{count} rows. Train with: python {__file__} {data} trainer.policy.model.path=Qwen/Qwen3-0.6B")


def train() -> None:
    """SkyRL's own entry point, with our generator."""
    from ludus_trainers.skyrl import LudusGenerator
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp

    class LudusExp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            step_wise = cfg.generator.step_wise_trajectories
            return LudusGenerator(inference_engine_client, tokenizer, "mcqa", step_wise=step_wise)

    LudusExp(SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])).run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["prepare"]:
        prepare(Path(sys.argv[2] if len(sys.argv) > 2 else "skyrl-run").absolute())
    else:
        train()
