# tasks are read from Parquet and .zst files
echo '["The answer is \\boxed{A}."]' > script.yaml
python - <<'END'
import json
from pathlib import Path

import ludus

lines = (Path(ludus.__file__).parent / "environments/mcqa/data/example.jsonl").read_text().splitlines()[:2]
Path("tasks.jsonl").write_text("\n".join(lines))
try:
    import pyarrow
    import pyarrow.parquet
    import zstandard
except ImportError:  # without the extra these are no such files, and the collection says what is missing
    Path("tasks.parquet").write_bytes(b"PAR1")
else:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([json.loads(line) for line in lines]), "tasks.parquet")
    Path("tasks.jsonl.zst").write_bytes(zstandard.compress(Path("tasks.jsonl").read_bytes()))
END
for tasks in tasks.parquet tasks.jsonl.zst; do
    ludus collect mcqa --input $tasks --model scripted:script.yaml --output of-$tasks
    expect_completed of-$tasks 2
done
python -c 'import huggingface_hub'
