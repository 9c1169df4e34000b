# a game of chess is played; needs stockfish
# without: pip install ludus-lab
echo '["<move>d1d8</move>"]' > script.yaml
ludus collect chess --model scripted:script.yaml --limit 1 --output run
expect_completed run 1
