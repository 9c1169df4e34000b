"""One hand of blackjack against a dealer."""
