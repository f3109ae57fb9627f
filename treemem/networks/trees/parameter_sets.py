"""Which nodes share parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treemem.checked_options import checked_count, checked_flag
from treemem.errors import GraphError, RecipeError
from treemem.schedule.schedule import Schedule
from treemem.trees.vocabulary import Vocabulary, children_in_words, in_words


class SetsByArity:
    """A set of parameters for each kind of each arity.

    Parameters of all kinds of one arity are stacked. With a vocabulary every kind has a set of its own, or all kinds of
    one arity share one; without, there is one set for each arity.

    Args:
        vocabulary: the kinds; None for graphs without labels.
        arities: which arities have parameters where there is no vocabulary; None for 2 alone.
        shared: whether the kinds of one arity share one set.
        max_arity: nodes of more children get no parameters, since these grow with the square of the arity.

    Raises:
        RecipeError: an arity below 1, or arities beside a vocabulary, which has its own.

    Attributes:
        share_labels: whether inner nodes of several labels share a set.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | None,
        arities: Iterable[int] | None = None,
        shared: bool = False,
        max_arity: int = 32,
    ) -> None:
        check_vocabulary(vocabulary)
        self._max_arity = checked_count("max_arity", max_arity, least=0)
        self._shared = checked_flag("shared_kinds", shared)
        self._kinds: dict[int, tuple[int, ...] | None]
        if vocabulary is None:
            self._kinds = dict.fromkeys(_checked_arities((2,) if arities is None else arities))
        elif arities is not None:
            raise RecipeError("arities go with a layer without a vocabulary; this one's says what arities there are")
        else:
            self._kinds = dict(sorted(vocabulary.kinds_of_arity.items()))
        self._kinds = {arity: kinds for arity, kinds in self._kinds.items() if arity <= max_arity}

        self.share_labels = vocabulary is not None and (
            _share_labels(vocabulary, vocabulary.kinds_of_arity.values() if self._shared else None)
        )

    @property
    def arities(self) -> tuple[int, ...]:
        """The arities that have parameters, ascending."""
        return tuple(self._kinds)

    def count(self, arity: int) -> int:
        """Number of sets for nodes of this arity."""
        kinds = self._kinds[arity]
        return 1 if kinds is None or self._shared else len(kinds)

    def set_of_kind(self, arity: int) -> Mapping[int, int] | None:
        """The place of each kind's set among those of its arity; None where all share one."""
        kinds = self._kinds[arity]
        return None if kinds is None or self._shared else {kind: place for place, kind in enumerate(kinds)}

    def check(self, schedule: Schedule, layer: str) -> None:
        """Make sure that every inner row has parameters.

        Raises:
            GraphError: a node of an arity or kind without; the message names the node.
        """
        known: dict[int, Mapping[int, int] | None] = {arity: self.set_of_kind(arity) for arity in self._kinds}
        for level in schedule.levels[1:]:
            for segment in level.segments:
                if segment.arity not in known:
                    node = int(schedule.node_of_row[segment.begin])
                    has = f"only for nodes with {in_words(list(known))}" if known else "for no inner nodes"
                    is_over = segment.arity > self._max_arity
                    remedy = f"raise max_arity={self._max_arity}" if is_over else f"add {segment.arity} to its arities"
                    raise GraphError(
                        f"node {node} has {children_in_words(segment.arity)}, and this {layer} has parameters {has}; "
                        f"{remedy}, or use a ChildSumTreeLSTM"
                    )
                kinds = known[segment.arity]
                if kinds is not None and segment.kind not in kinds:
                    node = int(schedule.node_of_row[segment.begin])
                    raise GraphError(
                        f"node {node} has kind {segment.kind} and {segment.arity} children; this {layer} has "
                        f"parameters for kinds {', '.join(map(str, kinds))} of that arity"
                    )


class SetsOfAnyArity:
    """Sets of parameters that do not depend on the number of children.

    Args:
        vocabulary: the kinds; None for graphs without labels.
        shared: whether all nodes share one set; otherwise each kind, leaves included, has its own.

    Raises:
        RecipeError: kinds with sets of their own, and no vocabulary to name them.

    Attributes:
        share_labels: whether inner nodes of several labels share a set.
    """

    def __init__(self, vocabulary: Vocabulary | None, shared: bool) -> None:
        check_vocabulary(vocabulary)
        if not checked_flag("shared_kinds", shared) and vocabulary is None:
            raise RecipeError("shared_kinds=False needs a vocabulary, which says what kinds there are")
        self._sets = None if vocabulary is None or shared else {kind: kind for kind in range(vocabulary.num_kinds)}
        self.share_labels = vocabulary is not None and (
            _share_labels(vocabulary, [range(vocabulary.num_kinds)] if shared else None)
        )

    @property
    def count(self) -> int:
        """Number of sets."""
        return 1 if self._sets is None else len(self._sets)

    def set_of_kind(self, arity: int) -> Mapping[int, int] | None:
        """The set of each kind; None where all nodes share one."""
        return self._sets


ParameterSets = SetsByArity | SetsOfAnyArity
"""The set of parameters that each kind of inner node uses."""


def _share_labels(vocabulary: Vocabulary, sets: Iterable[Iterable[int]] | None) -> bool:
    """Whether nodes of several labels share a set, for sets of inner kinds; None: each kind has a set."""
    labels = vocabulary.labels_of_kind
    kinds_of_sets = ([kind] for kind in range(vocabulary.num_kinds)) if sets is None else sets
    return any(len({label for kind in kinds for label in labels[kind]}) > 1 for kinds in kinds_of_sets)


def _checked_arities(arities: Iterable[int]) -> list[int]:
    if isinstance(arities, str) or not isinstance(arities, Iterable):
        raise RecipeError(f"arities must be whole numbers in a sequence, such as (1, 2), not {arities!r}")
    return sorted({checked_count("arities", arity) for arity in arities})


def check_vocabulary(vocabulary: object) -> None:
    """Raise :class:`RecipeError` for anything but a vocabulary or None."""
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        raise RecipeError(f"vocabulary must be a Vocabulary, not {type(vocabulary).__name__}")
