# a game of NetHack is begun
# without: pip install ludus-lab
pip install --quiet --no-deps nle==1.3.0
ludus collect nethack --model scripted:ludus_lab.nethack.explorer:explore --limit 1 --output run
expect_completed run 1
