"""slime's custom generate function for multiple-choice questions. Run it to write the prompts and see the flags.

python packages/trainers/examples/mcqa_slime.py slime-run
"""

import json
import sys
from pathlib import Path

from ludus_trainers.prompts import slime_rows
from ludus_trainers.slime import SlimeRollouts

custom_generate = SlimeRollouts("mcqa")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = slime_rows("mcqa")
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"""{len(rows)} prompts. Add to slime's train.py:
    --prompt-data {folder}/prompts.jsonl --input-key prompt --label-key label --metadata-key metadata \\
    --custom-generate-function-path mcqa_slime.custom_generate \\
    --dynamic-sampling-filter-path ludus_trainers.slime.keep_group""")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "slime-run").absolute())
