"""Explain answers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.attribution.explanation import Explanation
from treemem.attribution.gradients import gradient_times_input, integrated_gradients
from treemem.attribution.occlusion import MOST_NODES, check_occlusion, occlusion_scores
from treemem.checked_options import checked_choice
from treemem.data.examples import SequenceExamples
from treemem.errors import CellError, GraphError, RecipeError, TreememError, near_names, quoted
from treemem.model import Model
from treemem.task import ClassificationTask
from treemem.trees.forest import Forest

Method = Literal["occlusion", "gradient_times_input", "integrated_gradients"]
METHODS: tuple[Method, ...] = get_args(Method)
_MISSED = "the network changes too steeply for integrated gradients, whose sum is wrong; use occlusion"


def explain(
    model: Model, examples: Iterable[Any] | Forest, method: Method = "occlusion", *, answer: Any = None
) -> list[Explanation]:
    """Return how much each node and each subtree of each example speaks for an answer of the model.

    ``"occlusion"`` replaces each subtree in turn by a leaf and runs the model again. The part of a subtree is the value
    of the answer less its value after the replacement; the score of a node is the part of its subtree less the parts of
    its children's subtrees. The leaf has the vocabulary's ``unknown`` label if training had it. Otherwise the model
    runs with each leaf label of its training in turn, of more than 16 with 16 that are spread evenly over the
    vocabulary, and the value is the mean.

    ``"gradient_times_input"`` is the product of the vector of a node's label and the gradient of the value there
    (Shrikumar et al. 2016). ``"integrated_gradients"`` (Sundararajan et al. 2017) takes the mean of the gradients
    between vectors of 0 and the labels' vectors, so scores sum up to the difference of the values. Both say nothing
    about nodes without a vector: inner nodes whose label chooses their weights.

    Args:
        model: of a task whose answer to a tree or a pair is a class, a number or a set of labels.
        examples: as for :meth:`Model.predict`.
        method: one of the above.
        answer: the class, the label or the name of the number to explain; by default the class that the model predicts,
            or the only number. A task with several numbers or labels needs it.

    Raises:
        RecipeError: an unknown method or answer, or a model that cannot be explained; the message says why.
        CellError: the network's output is not a number, or integrated gradients miss the sum by more than 1 %.
        GraphError: an example of more than 2,000 nodes is to be explained by occlusion.
        ParseError, VocabularyError, GraphError: as :meth:`Model.predict`.

    Example:
        >>> from treemem import load_pretrained
        >>> (explanation,) = explain(load_pretrained(), ["x + y = y"])  # doctest: +SKIP
        >>> explanation.tree_at(explanation.ranking()[0])  # doctest: +SKIP
    """
    explanations = []
    for number, explained in enumerate(explain_forest(model, model.forest_of(examples), method, answer=answer)):
        if isinstance(explained, TreememError):
            raise type(explained)(f"example {number + 1}: {explained}")
        explanations.append(explained)
    return explanations


def explain_forest(
    model: Model,
    forest: Forest,
    method: Method = "occlusion",
    *,
    answer: Any = None,
    threshold: float | None = None,
) -> list[Explanation | TreememError]:
    """Return an explanation for each example of a forest, or why it has none.

    Args:
        model, forest, method, answer: as for :func:`explain`.
        threshold: above which the second of two classes is predicted; None: that of the model.

    Raises:
        RecipeError, GraphError: as for :func:`explain`.
    """
    check_explainable(model, method, answer)
    if not len(forest):
        return []
    examples = model.task.examples_to_predict(forest)
    if isinstance(examples, SequenceExamples):
        raise RecipeError(f"{model.task.name} cannot be explained: its examples are sequences, not trees")
    size = np.diff(examples.forest.begin[:: examples.trees_per_example])
    is_large = size > MOST_NODES if method == "occlusion" else np.zeros(len(examples), bool)
    if is_large.any():
        rest = forest[np.repeat(~is_large, len(forest) // len(examples))]
        explained = iter(explain_forest(model, rest, method, answer=answer, threshold=threshold))
        return [
            GraphError(f"it has {nodes} nodes, and occlusion takes at most {MOST_NODES}; choose another method")
            if nodes > MOST_NODES
            else next(explained)
            for nodes in size.tolist()
        ]
    values = model.task.answer_scores(model.outputs(examples)).double()
    chosen = _chosen_answers(model, values, answer, model.usual_threshold if threshold is None else threshold)
    value = values.gather(1, torch.from_numpy(chosen)[:, None])[:, 0].numpy()
    baseline, missed = None, np.zeros(len(examples), bool)
    if method == "occlusion":
        score = occlusion_scores(model, examples, chosen, value)
    elif method == "gradient_times_input":
        score = gradient_times_input(model, examples, chosen)
    else:
        score, baseline, missed = integrated_gradients(model, examples, chosen, value)
    names, per_example = answers_of(model), examples.trees_per_example
    begin = examples.forest.begin[::per_example]
    return [
        CellError(_MISSED)
        if missed[number]
        else Explanation(
            examples.forest[number * per_example : (number + 1) * per_example],
            method,
            names[chosen[number]],
            float(value[number]),
            score[begin[number] : begin[number + 1]],
            None if baseline is None else float(baseline[number]),
        )
        for number in range(len(examples))
    ]


def answers_of(model: Model) -> tuple[Any, ...]:
    """Return the answers whose scores ``Task.answer_scores`` returns, in order."""
    return tuple(model.task.output_names or (0, 1))


def check_explainable(model: Model, method: Method, answer: Any = None) -> None:
    """Check that a method can explain an answer of a model.

    Raises:
        RecipeError: it cannot; the message says why.
    """
    checked_choice("method", method, METHODS)
    task, encoder = model.task, model.encoder
    task.answer_scores(torch.zeros(0, len(answers_of(model))))
    whole = model.needs_whole_batch
    if whole is not None:
        raise RecipeError(
            f"{type(encoder).__name__} cannot be explained with {whole}: its answer to an example depends on the other "
            "examples of the batch"
        )
    if method == "occlusion":
        check_occlusion(model)
    elif not getattr(encoder, "reads_vectors", False):
        raise RecipeError(f'{type(encoder).__name__} reads no vectors of labels; explain it with method="occlusion"')
    names = [*map(str, answers_of(model))]
    if answer is not None and str(answer) not in names:
        raise RecipeError(
            f"{task.name} has no answer {answer!r}{near_names(str(answer), names)}; it has {quoted(names)}"
        )
    if answer is None and len(names) > 1 and not isinstance(task, ClassificationTask):
        raise RecipeError(
            f"{task.name} has several answers, {quoted(names)}; say which one to explain (answer=, --explain-answer)"
        )


def _chosen_answers(model: Model, values: torch.Tensor, answer: Any, threshold: float) -> NDArray[np.int64]:
    """Return the column of the answer to explain for each example."""
    if answer is not None:
        column = [*map(str, answers_of(model))].index(str(answer))
        return np.full(len(values), column, np.int64)
    if values.shape[1] != 2:
        return values.argmax(1).numpy()
    least = model.temperature * torch.logit(torch.tensor(threshold, dtype=torch.float64))
    return (values[:, 1] > least).long().numpy()
