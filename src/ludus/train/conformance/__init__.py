"""The conformance kit: scripted rollouts go through an adapter into a trainer's data, and every token is checked."""
