# the charts of a collection are written for TensorBoard
# without: pip install ludus-telemetry
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --log-to tensorboard --output run
find run/tensorboard -name 'events.out.*' | grep -q .
