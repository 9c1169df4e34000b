# a game of NetHack is begun
# without: pip install ludus-lab
ludus collect nethack --model scripted:ludus_lab.nethack.explorer:explore --limit 1 --output run
expect_completed run 1
