"""The text of a language model: sentences of the grammar, or a corpus."""

from __future__ import annotations

import hashlib
import itertools
import math
from bisect import bisect
from dataclasses import dataclass

import numpy as np

from treemem.checked_options import Count, Natural, check_fields
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.networks.sequences.language_model.layer import END
from treemem.tasks.language_modeling.generation.english import english_grammar
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.pcfg import Grammar, Sentence
from treemem.trees.postorder import concatenated_ranges, offsets


@dataclass(frozen=True)
class LanguageDataOptions:
    """How many sentences to draw from the grammar. A corpus of the task's ``path`` has its own parts.

    Attributes:
        training_size, validation_size, test_size: numbers of sentences; one has 7.7 words on average.
        seed: of all choices.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 100_000
    validation_size: Count = 5000
    test_size: Count = 5000
    seed: Natural = 12093

    def __post_init__(self) -> None:
        check_fields(self, "data.")


def draw_sentences(grammar: Grammar, options: LanguageDataOptions) -> Forest:
    """Return sentences of a grammar with their trees, divided into splits.

    A sentence belongs to the split that a hash of its words and the seed chooses, so no sentence is in two of them.
    Within a split, sentences are as frequent as the grammar makes them, some more than once. A split has the grammar's
    probabilities conditional on this choice: those of test sentences are not changed by what the training text has.

    Returns:
        The trees; ``tree_data`` has ``split`` and ``log_probability``, in nats, of each sentence.
    """
    sizes = [options.training_size, options.validation_size, options.test_size]
    shares = [total / sum(sizes) for total in itertools.accumulate(sizes)]
    kept: list[list[Sentence]] = [[] for _ in sizes]
    missing = sum(sizes)
    key = options.seed.to_bytes(8, "big")
    for sentence in grammar.sentences(options.seed):
        digest = hashlib.blake2b(" ".join(sentence.words).encode(), digest_size=8, key=key).digest()
        place = bisect(shares, int.from_bytes(digest, "big") / 2**64, hi=len(sizes) - 1)
        if len(kept[place]) < sizes[place]:
            kept[place].append(sentence)
            missing -= 1
            if not missing:
                break
    forest = grammar.forest([sentence for part in kept for sentence in part])
    return forest.with_data(tree_data={**forest.tree_data, "split": np.repeat(SPLITS, sizes)})


def grammar_data(words: int, options: LanguageDataOptions) -> TaskData:
    """Return sentences of the English grammar, with a card that says how well a model can predict them."""
    grammar = english_grammar(words)
    forest = draw_sentences(grammar, options)
    split, length = forest.tree_data["split"], np.diff(leaf_nodes(forest)[1])
    rows = []
    for name in SPLITS:
        lengths = length[split == name]
        rows.append([name, len(lengths), lengths.sum(), lengths.max(), f"{best_perplexity(forest, name):.2f}"])
    about = (
        "# Language modelling\n\n"
        f"Sentences of the English grammar with {len(grammar.words)} words, seed {options.seed}. A sentence has on "
        f"average {grammar.mean_length:.2f} words and an entropy of {grammar.entropy / math.log(2):.2f} bits, so the "
        f"least perplexity is {grammar.perplexity:.2f} for each word and end of sentence.\n\n"
        "The last column is the perplexity of the grammar itself on the sentences of a split."
    )
    head = ["split", "sentences", "words", "longest", "the grammar's perplexity"]
    return TaskData(forest, data_card(about, head, rows))


def best_perplexity(forest: Forest, split: str) -> float:
    """Return the grammar's own perplexity on the sentences of a split, ends of sentences included.

    Args:
        forest: of :func:`draw_sentences`.
        split: its name.
    """
    in_split = forest.tree_data["split"] == split
    tokens = np.diff(leaf_nodes(forest)[1])[in_split] + 1
    return math.exp(-forest.tree_data["log_probability"][in_split].sum() / tokens.sum())


def leaf_nodes(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes that are words, int64 ``[words]``, and where each sentence begins in them, ``[trees + 1]``."""
    if forest.is_flat:
        return forest.flat_nodes()
    is_leaf = forest.arity == 0
    return np.flatnonzero(is_leaf), offsets(is_leaf)[forest.begin]


def with_ends(forest: Forest, *, begin: bool) -> Forest:
    """Return the sentences of a forest as flat trees whose last word is ``<eos>``.

    Args:
        forest: flat trees, or any trees whose leaves are words.
        begin: whether the first word is ``<eos>`` too.
    """
    node, first = leaf_nodes(forest)
    length = np.diff(first)
    table = {name: number for number, name in enumerate(dict.fromkeys([*forest.labels, END, SEQUENCE]))}
    start = offsets(length + begin + 2)
    label, arity = np.full(int(start[-1]), table[END], np.int32), np.zeros(int(start[-1]), np.int32)
    label[concatenated_ranges(start[:-1] + begin, length)] = forest.label[node]
    label[start[1:] - 1] = table[SEQUENCE]
    arity[start[1:] - 1] = length + begin + 1
    return Forest(tuple(table), label, arity, start, tree_data=forest.tree_data)
