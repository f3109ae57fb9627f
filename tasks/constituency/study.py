"""Induced trees of the networks of a study that read words, as measurements of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from treemem.model import Model
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.constituency.evaluation import (
    evaluate_trees,
    induce_trees,
    score_trees,
    ways_to_induce,
    with_words,
)
from treemem.tasks.constituency.gold import no_longer
from treemem.tasks.measured_models import unmeasured_models
from treemem.trees.formats.brackets import format_brackets
from treemem.trees.formats.penn import read_penn_trees
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.tree import Tree


def tree_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, longest: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run; see :mod:`treemem.tasks.measured_models`.

    ``scores`` has the fields of a :class:`~treemem.tasks.constituency.TreeScore` for each layer and each baseline, on
    the test sentences, whose trees the data of the study must have; none if the network induces no trees.

    Args:
        done, before: of the study.
        longest: leave out sentences of more words.
    """
    for run, model, first in unmeasured_models(done, before):
        forest = done.data[run.data]
        gold = no_longer(list(forest[forest.tree_data["split"] == SPLITS[2]]), longest)
        scores = evaluate_trees(model, gold) if getattr(model.encoder, "can_induce_trees", False) else []
        yield {**first, "scores": [dataclasses.asdict(score) for score in scores]}


def example_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run that induces trees; see :mod:`treemem.tasks.measured_models`.

    ``trees`` has the induced trees of the sentences of :func:`example_sentences` in brackets, by layer if there are
    layers.
    """
    sentences = [[leaf.label for leaf in tree.leaves()] for tree in example_sentences()]
    for _, model, first in unmeasured_models(done, before):
        if getattr(model.encoder, "can_induce_trees", False):
            trees = {
                name: [format_brackets(tree) for tree in induce_trees(model, sentences, **options)]
                for name, options in ways_to_induce(model).items()
            }
            yield {**first, "trees": trees}


def example_sentences() -> list[Tree]:
    """Return our own English sentences with trees in the manner of the Penn Treebank."""
    return read_penn_trees(Path(__file__).with_name("sentences.mrg"))


def control_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run that induces trees; see :mod:`treemem.tasks.measured_models`.

    Do the trees come from the words, and from training? ``scores`` has the fields of a
    :class:`~treemem.tasks.constituency.TreeScore`, on the test sentences, for the trees of

    - ``"induced"``: the model;
    - ``"words of another sentence"``: the model, from another test sentence of the same length;
    - ``"untrained"``: the network with its first weights, and the model's vectors of words.
    """
    for run, model, first in unmeasured_models(done, before):
        if not getattr(model.encoder, "can_induce_trees", False):
            continue
        forest = done.data[run.data]
        gold = list(forest[forest.tree_data["split"] == SPLITS[2]])
        sentences = [[leaf.label for leaf in tree.leaves()] for tree in gold]
        others = _of_other_sentences(sentences)
        torch.manual_seed(run.training.seed)
        untrained = Model(model.task, model.network, model.vocabulary).to(model.device)
        untrained.encoder.embedding.load_state_dict(model.encoder.embedding.state_dict())  # type: ignore[union-attr]
        trees = {
            "induced": induce_trees(model, sentences),
            "words of another sentence": [
                with_words(tree, words) for tree, words in zip(induce_trees(model, others), sentences, strict=True)
            ],
            "untrained": induce_trees(untrained, sentences),
        }
        scores = [score_trees(gold, made, name) for name, made in trees.items()]
        yield {**first, "scores": [dataclasses.asdict(score) for score in scores]}


def _of_other_sentences(sentences: list[list[str]]) -> list[list[str]]:
    """Return for each sentence the next one of its length; itself if it is the only one."""
    places: dict[int, list[int]] = {}
    for place, words in enumerate(sentences):
        places.setdefault(len(words), []).append(place)
    following = {
        place: after for same in places.values() for place, after in zip(same, [*same[1:], same[0]], strict=True)
    }
    return [sentences[following[place]] for place in range(len(sentences))]
