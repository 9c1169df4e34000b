"""The token sequences of a rollout, as its model calls recorded them. Text is never tokenized again."""

from __future__ import annotations

from ludus.errors import Failure, UserError
from ludus.tokens import Sequence
from ludus_data.export.conversation import LeftOut
from ludus_data.recorded import Sample


def token_rows(sample: Sample) -> list[Sequence]:
    """The sequences of a rollout; a rollout without the tokens of all of its calls is left out."""
    from ludus.rollout import Rollout  # takes long to import, and few exports need tokens

    try:
        sequences = list(Rollout.from_row(sample.row).sequences())
    except UserError as error:
        raise LeftOut("no token ids: collect with --tokens") from error
    except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
        raise LeftOut("its token ids cannot be read") from error
    if not all(_is_whole(sequence) for sequence in sequences):
        raise LeftOut("its token ids cannot be read")
    return sequences


def _is_whole(sequence: Sequence) -> bool:
    return len(sequence.ids) == len(sequence.mask) == len(sequence.logprobs) and all(
        type(id) is int for id in sequence.ids
    )
