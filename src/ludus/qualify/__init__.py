"""Proof that an environment's verifier can be trusted: bad policies earn nothing, a right answer earns all of it."""
