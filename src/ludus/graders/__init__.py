"""Functions that judge text. Any environment's verifier can call them."""
