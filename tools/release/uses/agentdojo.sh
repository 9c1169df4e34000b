# a task of AgentDojo is played
# without: pip install ludus-lab
echo '["Done."]' > script.yaml
ludus collect agentdojo --model scripted:script.yaml --limit 1 --output run
expect_completed run 1
