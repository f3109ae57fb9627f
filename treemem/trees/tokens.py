"""The tokens of trees in the ids of a vocabulary: what a sequence model reads where a tree model reads the tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from treemem.errors import VocabularyError, near_names
from treemem.trees.forest import Forest
from treemem.trees.token_layout import LEAVES_ALONE, TokenForm, TokenSequences, punctuation, write_tokens
from treemem.trees.vocabulary import Vocabulary

__all__ = ["TokenForm", "TokenSequences", "flat_tokens", "forest_tokens", "token_table"]


def token_table(vocabulary: Vocabulary, form: TokenForm) -> tuple[str, ...]:
    """Every token that trees of ``vocabulary`` can make, by its id; the leaves come first, with their own ids.

    Punctuation comes last. A label ``(`` is another token than the bracket ``(``, so such a text may stand twice.

    Example:
        >>> token_table(Vocabulary(["x", "1"], [("Add", 2)]), "function")
        ('x', '1', 'Add', '(', ',', ')')
    """
    marks = punctuation(form)
    number = () if vocabulary.number is None else (vocabulary.number,)
    labels = dict.fromkeys((*vocabulary.leaves, *number) if form in LEAVES_ALONE else vocabulary.labels)
    return (*labels, *marks)


def ambiguous_label(vocabulary: Vocabulary, form: TokenForm) -> str | None:
    """Return a label that makes different trees the same tokens, though the form writes all labels.

    In preorder, ``(f (f x y))`` and ``(f (f x) y)`` are both ``f f x y``: the tokens tell the tree only if each label
    has one number of children. The forms of leaves alone leave the rest of the tree out on purpose.

    Example:
        >>> ambiguous_label(Vocabulary(["x"], [("-", 1), ("-", 2)]), "preorder")
        '-'
    """
    if form != "preorder":
        return None
    arities = Counter(label for label, _ in vocabulary.functions)
    arities.update(vocabulary.leaves)
    if vocabulary.accepts_unknown_functions:
        arities[str(vocabulary.unknown)] += 1
    return next((label for label, count in arities.items() if count > 1), None)


def forest_tokens(forest: Forest, form: TokenForm, vocabulary: Vocabulary | None = None) -> TokenSequences:
    """Write every tree as tokens.

    ================ ============================== ====================================================
    form             ``(f (g a) b c)``, ``(+ a b)`` reads as
    ================ ============================== ====================================================
    preorder         ``f g a b c``, ``+ a b``       labels, a parent before its children; tells the tree only if each
                                                    label has one number of children
    function         ``f ( g ( a ) , b , c )``      a label, then its children in brackets, between commas
    infix            ``f ( g ( a ) , b , c )``,     as ``function``, but the label of a node of two children
                     ``( a + b )``                  stands between them
    brackets         ``( f ( g a ) b c )``          as ``str(tree)`` prints it
    bracketed leaves ``( ( a ) b c )``              the labels of the leaves, each inner node in brackets
    leaves           ``a b c``                      the labels of the leaves
    ================ ============================== ====================================================

    Args:
        forest: the trees.
        form: one of the above.
        vocabulary: the ids of tokens are those of :func:`token_table`, and leaves that it does not know are read as its
            ``unknown``; by default ids count the forest's own labels, then the punctuation.

    Raises:
        VocabularyError: a label that the vocabulary does not know.
        TreememError: there is no such form.
    """
    if form == "leaves" and forest.is_flat:
        return flat_tokens(forest, vocabulary)
    if vocabulary is None:
        return forest.tokens(form)
    symbol = vocabulary.encode(forest).symbol
    number = len(vocabulary.leaves)  # the token after the leaves
    return write_tokens(forest, form, token_table(vocabulary, form), np.where(symbol >= 0, symbol, number))


def flat_tokens(forest: Forest, ids: Vocabulary | Mapping[str, int] | None = None) -> TokenSequences:
    """The tokens of the sequences of :meth:`Forest.from_sequences`; an empty sequence has none.

    Args:
        forest: flat trees.
        ids: the id of each token: a vocabulary, whose leaves are the tokens and whose ``unknown`` stands for others, or
            a mapping to 0, 1, 2, ...; by default the ids count the forest's own labels.

    Raises:
        VocabularyError: a token without an id.
        GraphError: a tree that is no sequence.
    """
    node, begin = forest.flat_nodes()
    label = forest.label[node]
    if ids is None:
        return forest.tokens("leaves")
    if isinstance(ids, Vocabulary):
        table = token_table(ids, "leaves")
        of_label = {name: known[1] for name in forest.labels if (known := ids.find(name, 0))}
    else:
        table = tuple(sorted(ids, key=ids.__getitem__))
        of_label = {name: ids[name] for name in forest.labels if name in ids}
    token = np.array([of_label.get(name, -1) for name in forest.labels], np.int64)[label]
    if (token < 0).any():
        first = int(np.argmax(token < 0))
        name = forest.labels[label[first]]
        where = forest.node_name(int(node[first]))
        raise VocabularyError(f"{where}: unknown token {name!r}{near_names(name, table)}")
    return TokenSequences(table, token, begin, node)
