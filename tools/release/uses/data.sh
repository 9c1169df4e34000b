# rollouts are exported as Parquet, and tasks are read from Parquet and .zst files
# without: pip install ludus-data
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --output run
ludus data export run --to verl --output tasks.parquet
ludus data convert tasks.parquet --output tasks.jsonl
python -c 'import zstandard; open("tasks.jsonl.zst", "wb").write(zstandard.compress(open("tasks.jsonl", "rb").read()))'
ludus collect mcqa --input tasks.jsonl.zst --model scripted:script.yaml --output again
expect_completed again 2
python -c 'import huggingface_hub'
