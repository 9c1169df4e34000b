"""Judging a change of a repository: a clean checkout, the change, the hidden tests, and a verdict made outside."""

from ludus.graders.repository.checkout import FOLDER, CheckoutProvider, SetUp
from ludus.graders.repository.grading import TEST_SPEC, Grade, RepositoryTests, grade_change
from ludus.graders.repository.patches import PatchError, apply_patch, make_patch
from ludus.graders.repository.trees import Tree, TreeTooLarge, is_protected, read_tree, with_change, write_tree

__all__ = [
    "FOLDER",
    "TEST_SPEC",
    "CheckoutProvider",
    "Grade",
    "PatchError",
    "RepositoryTests",
    "SetUp",
    "Tree",
    "TreeTooLarge",
    "apply_patch",
    "grade_change",
    "is_protected",
    "make_patch",
    "read_tree",
    "with_change",
    "write_tree",
]
