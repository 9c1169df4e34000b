# the curves of a training run are drawn
python "$SOURCE/examples/train_grpo/plotting.py" "$SOURCE"/examples/train_grpo/results/additions-*.json --output curves.png
head -c 4 curves.png | grep -q PNG
