# a task of a verifiers taskset is scored by the task's own reward
echo '["8"]' > script.yaml
ludus collect verifiers --model scripted:script.yaml --limit 1 --output run
expect_reward run 1.0
