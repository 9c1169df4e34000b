# two rollouts are played on a Ray cluster of this machine
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model "scripted:$PWD/script.yaml" --limit 2 --ray local --workers 1 --output run
expect_completed run 2
