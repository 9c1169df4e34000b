"""A data set of groups for Tinker's cookbook: pass `GroupDataset` to its training loop.

python packages/trainers/examples/mcqa_tinker.py              # shows the first row
"""

from ludus.train.rows import rows_in


def groups(model: str, size: int = 8):
    """A builder for each question."""
    from ludus_trainers.tinker import LudusGroupBuilder

    return [LudusGroupBuilder(row, size, "mcqa", tokenizer=model) for _, row in rows_in("mcqa")]


def dataset(model: str, batch: int = 4):
    """Tinker's `RLDataset`. Train with a strategy that leaves failed members out, such as MinViableGroup."""
    from tinker_cookbook.rl.types import RLDataset

    builders = groups(model)

    class GroupDataset(RLDataset):
        def get_batch(self, index):
            return builders[index * batch : (index + 1) * batch]

        def __len__(self):
            return len(builders) // batch

    return GroupDataset()


if __name__ == "__main__":
    print(rows_in("mcqa")[0][1])
