"""The adapters as `ludus conformance` checks them: in the trainers' own classes, with scripted rollouts."""
