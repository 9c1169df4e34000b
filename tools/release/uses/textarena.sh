# a match of Nim is played by both players
# without: pip install ludus-lab
ludus collect textarena --model scripted:ludus_lab.textarena.players:expert_player --limit 1 --output run
expect_completed run 1
