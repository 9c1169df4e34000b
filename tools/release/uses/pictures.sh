# a drawn picture is asked about
# without: pip install ludus-lab
echo '["<answer>3</answer>"]' > script.yaml
ludus collect pictures --dataset stream --model scripted:script.yaml --limit 1 --output run
expect_completed run 1
