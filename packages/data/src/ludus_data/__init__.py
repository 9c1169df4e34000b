"""The work of `ludus data`: datasets converted, checked and prepared, and rollouts as training sets."""
