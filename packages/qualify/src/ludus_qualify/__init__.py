"""Tests of an environment's verifier: bad policies must earn no more than guessing, right answers the full reward."""
