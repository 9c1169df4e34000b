"""The advantages of a group, for trainers. `ludus.data.advantages` holds them, because exports need them too."""

from ludus.data.advantages import ESTIMATORS, group_mean, leave_one_out, per_turn, z_score

__all__ = ["ESTIMATORS", "group_mean", "leave_one_out", "per_turn", "z_score"]
