# the charts of a collection are written for Weights & Biases, without an account
# without: pip install ludus-telemetry
export WANDB_MODE=offline WANDB_DIR=$PWD
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --log-to wandb --output run
find . -name '*.wandb' | grep -q .
