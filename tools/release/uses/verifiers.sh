# a task of a verifiers taskset is scored by its own rewards: 1 for the sum, 0.1 for nothing but the number
echo '["8"]' > script.yaml
ludus collect verifiers --model scripted:script.yaml --limit 1 --output run
expect_reward run 1.1
