# the embedded model answers a question of mcqa
# without: The embedded model is not installed
ludus collect mcqa --model local --limit 1 --output run
expect_completed run 1
