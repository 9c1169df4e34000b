# math_with_judge knows that 14/2 is 7
echo '["\\boxed{\\frac{14}{2}}"]' > script.yaml
ludus collect math_with_judge --model scripted:script.yaml --limit 1 --output run
expect_reward run 1.0
