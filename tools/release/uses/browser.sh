# a page is clicked; needs chromium, and miniwob without its dependencies
# without: pip install ludus-lab
pip install --quiet --no-deps miniwob==1.1.0
echo '[{"call": "look"}, {"call": "click", "arguments": {"ref": "e5"}}, "Done."]' > script.yaml
ludus collect browser --model scripted:script.yaml --limit 1 --output run
expect_completed run 1
