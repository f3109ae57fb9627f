"""Sentences that a language model reads one by one: their words as numbers, their batches, their log probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.errors import RecipeError, VocabularyError, near_names
from treemem.evaluation_mode import in_evaluation_mode
from treemem.model import Model
from treemem.networks.sequences.language_model.layer import END
from treemem.trees.vocabulary import Vocabulary

_WORDS_AT_ONCE = 4096


def word_ids(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> list[list[int]]:
    """Return the numbers of the words of sentences.

    Raises:
        VocabularyError: an unknown word, if the vocabulary has no unknown one; names the sentence, from 1.
    """
    number = {word: place for place, word in enumerate(vocabulary.leaves)}
    unknown = None if vocabulary.unknown is None else number[vocabulary.unknown]
    ids = []
    for place, words in enumerate(sentences, start=1):
        numbers = [number.get(word, unknown) for word in words]
        if None in numbers:
            word = words[numbers.index(None)]
            raise VocabularyError(
                f"sentence {place} has the word {word!r:.60}, which the model does not know"
                f"{near_names(word, vocabulary.leaves)}; its vocabulary has no word for unknown ones"
            )
        ids.append([word_id for word_id in numbers if word_id is not None])
    return ids


def batches_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of sentences in batches of similar length, with at most some thousands of words."""
    order = np.argsort(lengths, kind="stable").tolist()
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * (lengths[order[last]] + 2) <= _WORDS_AT_ONCE:
            last += 1
        yield order[first:last]
        first = last


def log_probabilities(
    model: Model,
    sentences: Sequence[Sequence[str]],
    *,
    end: bool = True,
    advance: Callable[[int], object] = lambda count: None,
) -> NDArray[np.float64]:
    """Return the log probability of each sentence in nats, read alone after an end of sentence, ``[sentences]``.

    Sentences of the same words are read once, so their values are equal; all unknown words are one word.

    Args:
        model: a language model.
        sentences: the words of each. Unknown words are read as the vocabulary's unknown one.
        end: whether the end of the sentence counts.
        advance: called with the number of sentences after each batch.

    Raises:
        RecipeError: the vocabulary has no ``<eos>``, so that the model is no language model.
        VocabularyError: a word that the model does not know, if its vocabulary has no unknown word; names the sentence.
    """
    if END not in model.vocabulary.leaves:
        raise RecipeError(f"a model of {model.task.name} is no language model: its vocabulary has no {END}")
    first = model.vocabulary.leaves.index(END)
    number: dict[tuple[int, ...], int] = {}
    of_sentence = [
        number.setdefault(tuple(sentence), len(number)) for sentence in word_ids(sentences, model.vocabulary)
    ]
    different = list(number)
    totals = np.zeros(len(different))
    times = np.bincount(of_sentence, minlength=len(different))
    with in_evaluation_mode(model):
        for places in batches_by_length([len(sentence) for sentence in different]):
            batch = TokenBatch.from_sequences([[first, *different[place]] for place in places]).to(model.device)
            logits = model(batch)
            following = torch.cat([batch.token[:, 1:], batch.token[:, :1]], 1)
            last = to_device(batch.lengths[:, None] - 1, following.device)
            following = following.scatter(1, last, first)  # after it, batches have padding
            scores = logits.log_softmax(-1).gather(2, following[..., None])[..., 0]
            counted = batch.lengths - (0 if end else 1)
            is_counted = torch.arange(following.shape[1]) < counted[:, None]
            total = (scores.double() * to_device(is_counted, scores.device)).sum(1)
            totals[places] = total.cpu().numpy()
            advance(int(times[places].sum()))
    return totals[of_sentence]
