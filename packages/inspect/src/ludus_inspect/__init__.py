"""Tasks of Inspect as environments, and rollouts as logs of Inspect."""
