# reasoning_gym scores a sum, and a puzzle that it generated itself
echo '["<answer>109</answer>"]' > script.yaml
ludus collect reasoning_gym --model scripted:script.yaml --limit 1 --output run
expect_reward run 1.0
ludus collect reasoning_gym --dataset stream --model scripted:script.yaml --limit 1 --output generated
expect_completed generated 1
