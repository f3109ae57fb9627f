"""Labels to ids and (label, arity) to kinds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError, RecipeError, VocabularyError, near_names, quoted, shown
from treemem.records import read_json, read_source, write_text
from treemem.trees.forest import Forest

KindsBy = Literal["label", "arity"]

SYMBOL_KIND = 0
NUMBER_KIND = 1
_FORMAT = 1
_DENSE_TABLE = 1 << 16


class Kind(NamedTuple):
    """What nodes that share parameters have in common.

    Attributes:
        label: their label; ``"symbol"`` or ``"number"`` for leaves, ``"*"`` where all labels of an arity share.
        arity: their number of children.
    """

    label: str
    arity: int


class EncodedForest(NamedTuple):
    """A forest in the ids of a vocabulary.

    Attributes:
        kind: int32 ``[nodes]``, index into ``vocabulary.kinds``.
        symbol: int32 ``[nodes]``, index of the label into ``vocabulary.labels``, whose first entries are
            ``vocabulary.leaves``; -1 for number leaves.
    """

    kind: NDArray[np.int32]
    symbol: NDArray[np.int32]


class Vocabulary:
    """The labels that a model knows, and which nodes share parameters. It does not change once built.

    Args:
        leaves: labels of symbol leaves, in the order of the rows of an embedding table.
        functions: ``(label, arity)`` for each kind of inner node. A label may have several arities.
        kinds: ``"label"``: each of ``functions`` has its own parameters. ``"arity"``: all functions of the same arity
            share them, and a layer reads the embeddings of their labels.
        number: the label of leaves that carry a number, such as ``"Number"``; by default there are no such leaves.
        unknown: one of ``leaves``, which replaces unknown leaves. By default an unknown leaf is an error. With
            ``kinds="arity"`` unknown functions are accepted too, if their arity is known.

    Attributes:
        leaves, functions, number, unknown, kinds_by: the arguments.
        kinds: all kinds in the order of their ids: symbol leaves (0), number leaves (1, if ``number`` is given), then
            inner nodes by arity and, within an arity, in the given order.
        kinds_of_arity: ids of the inner kinds of each arity.

    Raises:
        VocabularyError: a label or function is given twice, a function is not a label with an arity, an arity is below
            1, or ``unknown`` is not a leaf.

    Example:
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2), ("sin", 1)])
        >>> vocabulary.kinds
        (Kind(label='symbol', arity=0), Kind(label='sin', arity=1), Kind(label='Add', arity=2))
    """

    def __init__(
        self,
        leaves: Sequence[str],
        functions: Iterable[tuple[str, int]],
        *,
        kinds: KindsBy = "label",
        number: str | None = None,
        unknown: str | None = None,
    ) -> None:
        if isinstance(leaves, str):
            raise VocabularyError(f"leaves must be several labels, not the string {leaves!r}")
        self.leaves = tuple(leaves)
        given = list(functions)
        for pair in given:
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[1], (int, np.integer))):
                raise VocabularyError(f"functions are labels with numbers of children, as ('f', 2), not {shown(pair)}")
        self.functions = tuple((label, int(arity)) for label, arity in given)
        self.kinds_by = kinds
        self.number = number
        self.unknown = unknown
        self._check()
        arities = sorted({arity for _, arity in self.functions})
        inner = [
            Kind(label, arity)
            for arity in arities
            for label in (
                ["*"] if kinds == "arity" else [name for name, own_arity in self.functions if own_arity == arity]
            )
        ]
        leaf_kinds = [Kind("symbol", 0)] + ([Kind("number", 0)] if number is not None else [])
        self.kinds: tuple[Kind, ...] = (*leaf_kinds, *inner)
        self.kinds_of_arity: dict[int, tuple[int, ...]] = {
            arity: tuple(index for index, kind in enumerate(self.kinds) if kind.arity == arity) for arity in arities
        }
        self._leaf_id = {label: index for index, label in enumerate(self.leaves)}
        kind_id = {kind: index for index, kind in enumerate(self.kinds)}
        self._function_kind = {
            (label, arity): kind_id[Kind("*" if kinds == "arity" else label, arity)] for label, arity in self.functions
        }

    def _check(self) -> None:
        named = [*self.leaves, *(label for label, _ in self.functions)]
        if self.kinds_by not in ("label", "arity"):
            raise VocabularyError(f'kinds must be "label" or "arity", not {self.kinds_by!r}')
        for leaf, count in Counter(self.leaves).items():
            if count > 1:
                raise VocabularyError(f"the leaf {leaf!r} is given twice")
        for (label, arity), count in Counter(self.functions).items():
            if count > 1:
                raise VocabularyError(f"the function {label!r} of {children_in_words(arity)} is given twice")
            if arity < 1:
                raise VocabularyError(f"the function {label!r} needs at least one child, not {arity}")
        if self.number is not None and self.number in self.leaves:
            raise VocabularyError(f"{self.number!r} is the label of number leaves and cannot be a symbol leaf too")
        if self.unknown is not None and self.unknown not in self.leaves:
            raise VocabularyError(f"unknown={self.unknown!r} is none of the leaves{near_names(self.unknown, named)}")

    @classmethod
    def from_forest(
        cls, forest: Forest, *, kinds: KindsBy = "label", number: str | None = None, unknown: str | None = None
    ) -> Vocabulary:
        """Make a vocabulary of all labels in a forest, in alphabetical order.

        For a forest of :meth:`Forest.from_sequences`, the labels are the tokens.

        Args:
            forest: the trees.
            kinds, number, unknown: as for the class. ``unknown`` is added to the leaves if it is not among them.
        """
        nodes = forest.flat_nodes()[0] if forest.is_flat else slice(None)
        pairs, _ = label_arity_pairs(forest.labels, forest.label[nodes], forest.arity[nodes])
        seen = sorted((forest.labels[label], arity) for label, arity in pairs)
        leaves = [label for label, arity in seen if arity == 0 and label != number]
        if unknown is not None and unknown not in leaves:
            leaves.append(unknown)
        functions = [(label, arity) for label, arity in seen if arity > 0]
        return cls(leaves, functions, kinds=kinds, number=number, unknown=unknown)

    @property
    def num_leaves(self) -> int:
        """Number of symbol leaves: the rows that an embedding of them needs."""
        return len(self.leaves)

    @property
    def num_kinds(self) -> int:
        """Number of kinds, those of leaves included."""
        return len(self.kinds)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Every label once: the leaves by their ids, then the number label, then the functions in the order given."""
        number = [] if self.number is None else [self.number]
        return tuple(dict.fromkeys([*self.leaves, *number, *(label for label, _ in self.functions)]))

    @property
    def accepts_unknown_functions(self) -> bool:
        """Whether an unknown function of a known arity is read as ``unknown``."""
        return self.unknown is not None and self.kinds_by == "arity"

    @cached_property
    def labels_of_kind(self) -> tuple[tuple[str, ...], ...]:
        """The labels of each inner kind's nodes, the unknown one included; empty for kinds of leaves."""
        by_kind: list[dict[str, None]] = [{} for _ in self.kinds]
        for (label, _), kind in self._function_kind.items():
            by_kind[kind][label] = None
        if self.accepts_unknown_functions:
            for kind, (_, arity) in enumerate(self.kinds):
                if arity:
                    by_kind[kind][str(self.unknown)] = None
        return tuple(map(tuple, by_kind))

    @cached_property
    def _label_id(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}

    @cached_property
    def only_symbol_of_kind(self) -> NDArray[np.int64]:
        """The symbol of each inner kind that has one label, -1 for other kinds, ``[kinds]``."""
        return np.array(
            [self._label_id[labels[0]] if len(labels) == 1 else -1 for labels in self.labels_of_kind], np.int64
        )

    def kind_index(self, kind: int) -> int:
        """The place of an inner kind among the kinds of its arity: its row in parameters stacked by arity.

        Raises:
            VocabularyError: there is no such kind, or it is a kind of leaf.
        """
        if not 0 <= kind < len(self.kinds) or self.kinds[kind].arity == 0:
            raise VocabularyError(f"{kind} is no kind of inner nodes of {self!r}")
        return self.kinds_of_arity[self.kinds[kind].arity].index(kind)

    def find(self, label: str, arity: int) -> tuple[int, int] | None:
        """``(kind, symbol)`` of a node by its label and number of children, or None where it is unknown.

        The symbol is the index of the label into :attr:`labels`, -1 for number leaves. With ``unknown``, unknown leaves
        have its symbol; so have unknown functions of a known arity if functions of an arity share their parameters
        (``kinds="arity"``).
        """
        if arity:
            kind = self._function_kind.get((label, arity))
            if kind is not None:
                return kind, self._label_id[label]
            if not self.accepts_unknown_functions or arity not in self.kinds_of_arity:
                return None
            return self.kinds_of_arity[arity][0], self._label_id[str(self.unknown)]
        if label == self.number:
            return NUMBER_KIND, -1
        symbol = self._leaf_id.get(label)
        if symbol is None and self.unknown is not None:
            symbol = self._leaf_id[self.unknown]
        return None if symbol is None else (SYMBOL_KIND, symbol)

    def is_unknown(self, label: str, arity: int) -> bool:
        """Return whether a node is read as :attr:`unknown`, since its label is not in the vocabulary."""
        if not arity:
            return self.unknown is not None and label != self.number and label not in self._leaf_id
        return (
            self.accepts_unknown_functions
            and arity in self.kinds_of_arity
            and (label, arity) not in self._function_kind
        )

    def encode(self, forest: Forest) -> EncodedForest:
        """The kind and the symbol of every node.

        Raises:
            VocabularyError: a label that is unknown, or known with other arities only; a number leaf without a finite
                value, or a value at another node. The message says where it stands first and which known labels are
                near.
        """
        return self.encode_nodes(forest.labels, forest.label, forest.arity, forest.value, name=forest.node_name)

    def encode_nodes(
        self,
        labels: Sequence[str],
        label: NDArray[np.integer],
        arity: NDArray[np.integer],
        value: NDArray[np.float64] | None = None,
        *,
        name: Callable[[int], str],
    ) -> EncodedForest:
        """:meth:`encode` for nodes in any order.

        Args:
            labels: the distinct labels.
            label: ``[nodes]``, index into ``labels``.
            arity: ``[nodes]``.
            value: ``[nodes]``, NaN where there is none.
            name: how messages call a node.

        Raises:
            VocabularyError: as :meth:`encode`.
        """
        pairs, pair_of_node = label_arity_pairs(labels, label, arity)
        kind_and_symbol = [self.find(labels[index], children) or (-1, -1) for index, children in pairs]
        kind_of_pair, symbol_of_pair = np.array(kind_and_symbol, np.int32).reshape(-1, 2).T
        kind = kind_of_pair[pair_of_node]
        if (kind_of_pair < 0).any():
            node = int(np.argmax(kind < 0))
            raise VocabularyError(f"{name(node)}: {self.unknown_label(labels[label[node]], int(arity[node]))}")
        self.check_values(kind, value, name=name, called=lambda node: labels[label[node]])
        return EncodedForest(kind, symbol_of_pair[pair_of_node])

    def check_values(
        self,
        kind: NDArray[np.integer],
        value: NDArray[np.float64] | None = None,
        *,
        name: Callable[[int], str],
        called: Callable[[int], str],
    ) -> None:
        """Check that number leaves, and they alone, have values, and finite ones.

        Args:
            kind: ``[nodes]``.
            value: ``[nodes]``, NaN where there is none.
            name: how messages call a node.
            called: the label of a node, or of its kind.

        Raises:
            VocabularyError: the first node that is wrong.
        """
        is_number = kind == NUMBER_KIND if self.number is not None else np.zeros(len(kind), bool)
        has_value = np.zeros(len(kind), bool) if value is None else ~np.isnan(value)
        if (is_number & ~has_value).any():
            node = int(np.argmax(is_number & ~has_value))
            raise VocabularyError(f"{name(node)}: the number leaf {self.number!r} needs a value")
        if value is None:
            return
        if (has_value & ~is_number).any():
            node = int(np.argmax(has_value & ~is_number))
            raise VocabularyError(
                f"{name(node)}: {called(node)!r} has the value {value[node]}, which this vocabulary would lose; "
                + ("it has no number leaves" if self.number is None else f"its number leaves are {self.number!r}")
            )
        if np.isinf(value).any():
            node = int(np.argmax(np.isinf(value)))
            raise VocabularyError(f"{name(node)}: the value of {called(node)!r} must be finite, not {value[node]}")

    def unknown_label(self, label: str, arity: int) -> str:
        """What to tell a user about a label that :meth:`find` does not find."""
        if arity > 0 and self.accepts_unknown_functions and label not in self.leaves and self.functions:
            known_arities = in_words(sorted(self.kinds_of_arity))
            return f"{label!r} has {children_in_words(arity)}; only functions with {known_arities} are known"
        arities = sorted(known for name, known in self.functions if name == label)
        sort = "leaf" if arity == 0 else "function"
        if label in self.leaves and arity:
            return f"{label!r} is known as a leaf and has {children_in_words(arity)} here"
        if arities:
            return f"{label!r} is known with {in_words(arities)} and has {arity or 'none'} here"
        names = [*self.leaves] if arity == 0 else [name for name, _ in self.functions]
        near = near_names(label, names) or f"; known are {quoted(names)}"
        return f"unknown {sort} {label!r}{near}"

    def to_dict(self) -> dict[str, Any]:
        """The vocabulary as JSON can hold it; :meth:`from_dict` reads it back."""
        return {
            "format": _FORMAT,
            "leaves": list(self.leaves),
            "functions": [list(function) for function in self.functions],
            "kinds": self.kinds_by,
            "number": self.number,
            "unknown": self.unknown,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Vocabulary:
        """Read what :meth:`to_dict` wrote.

        Raises:
            VocabularyError: it is of another form.
        """
        try:
            if fields["format"] != _FORMAT:
                raise VocabularyError(f"a vocabulary of format {fields['format']!r}; this version reads {_FORMAT}")
            functions = [(label, int(arity)) for label, arity in fields["functions"]]
            options = {"kinds": fields["kinds"], "number": fields["number"], "unknown": fields["unknown"]}
            leaves = list(fields["leaves"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, VocabularyError):
                raise
            raise VocabularyError(f"not the fields of a vocabulary: {type(error).__name__} {error}") from error
        return cls(leaves, functions, **options)

    def save(self, path: str | Path) -> None:
        """Write the vocabulary to a JSON file."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
        write_text(path, text)

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read what :meth:`save` wrote.

        Raises:
            VocabularyError: there is no such file, or it holds no vocabulary.
        """
        try:
            fields = read_json(read_source(path), str(path))
        except RecipeError as error:
            raise VocabularyError(str(error)) from error
        except ParseError as error:
            raise VocabularyError(f"{path} holds no vocabulary: {error}") from error
        try:
            return cls.from_dict(fields)
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from error

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the vocabulary, in hexadecimal: equal exactly where vocabularies are."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self.leaves)} leaves, {len(self.functions)} functions, {len(self.kinds)} kinds>"


def check_vocabulary(vocabulary: object) -> None:
    """Raise a ``VocabularyError`` where something else stands in the place of a vocabulary."""
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError(
            f"a Vocabulary is needed, not {type(vocabulary).__name__}; Vocabulary.from_forest makes one of trees"
        )


def children_in_words(number: int) -> str:
    """``1 child``, ``2 children``."""
    return f"{number} child" if number == 1 else f"{number} children"


def in_words(arities: Sequence[int]) -> str:
    """``1 child``, ``1 or 2 children``, ``1, 2 or 3 children``."""
    *first, last = arities
    return ", ".join(map(str, first)) + (" or " if first else "") + children_in_words(last)


def label_arity_pairs(
    labels: Sequence[str], label: NDArray[np.integer], arity: NDArray[np.integer]
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The distinct ``(label, arity)`` pairs, and the number of its pair for every node."""
    num_arities = int(arity.max(initial=0)) + 1
    key = label.astype(np.int64) * num_arities + arity
    if len(labels) * num_arities <= _DENSE_TABLE + 4 * len(key):
        occurs = np.bincount(key, minlength=1) > 0
        present, pair = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[key]
    else:
        present, pair = np.unique(key, return_inverse=True)
    return [divmod(place, num_arities) for place in present.tolist()], pair
