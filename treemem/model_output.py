"""What a model makes of a batch and says about an example; and what a test without a network says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from treemem.data.sum_count import SumCount


class ModelOutput(NamedTuple):
    """What a model makes of a batch.

    Attributes:
        outputs: of the head.
        encoded: of the encoder: a :class:`~treemem.nn.EncoderOutput`, or a tensor of encodings.
    """

    outputs: Any
    encoded: Any

    @property
    def auxiliary_losses(self) -> Mapping[str, SumCount]:
        """The encoder's auxiliary losses by name."""
        return getattr(self.encoded, "auxiliary_losses", None) or {}

    @property
    def state(self) -> Any:
        """What the encoder carries on to the next batch of a stream; None if nothing."""
        return getattr(self.encoded, "state", None)


class Answer(NamedTuple):
    """What a model says about one example.

    Attributes:
        prediction: a class, a number, a text or a list of these, as JSON can hold; None if the output is not a number.
        probability: of the prediction; None if the task has none.
    """

    prediction: Any
    probability: float | None


@dataclass(frozen=True)
class Verdict:
    """What a test without a network says about one example.

    Attributes:
        verdict: ``"true"``, ``"false"`` or ``"undecided"``.
        witness: values of the variables for which the example is false, if they are known.
    """

    verdict: str
    witness: Mapping[str, float] | None = None

    @property
    def label(self) -> int | None:
        """1 or 0; None if undecided."""
        return {"true": 1, "false": 0}.get(self.verdict)

    @property
    def point(self) -> str | None:
        """The witness as text, such as ``"x = 2, y = 3"``."""
        if not self.witness:
            return None
        return ", ".join(f"{name} = {value:.6g}" for name, value in self.witness.items())
