# a task of ARC-AGI-2 is played
# without: pip install ludus-lab
echo '["1 2"]' > script.yaml
ludus collect arc --dataset arc2_evaluation --model scripted:script.yaml --limit 1 --output run
expect_completed run 1
