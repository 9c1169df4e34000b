# an episode of Taxi-v4 is played
echo '["<action>0</action>"]' > script.yaml
ludus collect gymnasium:Taxi-v4 --model scripted:script.yaml --limit 1 --set agent.max_steps=3 --output run
expect_completed run 1
