"""Faults on purpose: `--chaos seed=7,model_500=5%,tool_hang=1%` breaks a collection, and checks that nothing is wrong.

The faults of a rollout are drawn from the seed, the rollout and the place, so the same run meets the same faults; a
resumed run meets others. A fault in the model, a tool or the verifier must fail its rollout. At the end every rollout
must have exactly one terminal record, and no rollout that met such a fault may have a reward.

`ChaosRun` wraps what a collection plays with: its model, its environments, its engine and its journals. Worker
processes wrap their own model and environments. A collection without `--chaos` has no wrapper.
"""
