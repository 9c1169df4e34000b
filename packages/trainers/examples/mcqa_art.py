"""Train with ART on multiple-choice questions, with the model that ART serves.

python packages/trainers/examples/mcqa_art.py train           # needs a GPU; without `train` it shows the settings
"""

import asyncio
import sys

from ludus.train.contract import GroupFeed
from ludus.train.policy import GroupPolicy

STEP, POLICY = 8, GroupPolicy(size=8, deadline=600)


async def train() -> None:
    import art
    from art.local import LocalBackend
    from ludus_trainers.art import art_group

    model = art.TrainableModel(name="mcqa", project="ludus", base_model="Qwen/Qwen3-0.6B")
    backend = LocalBackend()
    await model.register(backend)
    policy = f"vllm:{model.inference_base_url}#{model.get_inference_name()}"
    async with GroupFeed("mcqa", model=policy, policy=POLICY, groups_per_step=STEP, ahead=0, epochs=10) as feed:
        batch = []
        async for group in feed:
            batch.append(art_group(group))
            if len(batch) == STEP:
                await backend.train(model, batch)
                feed.update()
                batch = []


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        asyncio.run(train())
    else:
        print(POLICY)
