"""How far one gets with an equation without reading its structure: boosted trees on counts of tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError
from treemem.metrics.accuracy import binary_scores
from treemem.metrics.score import score_row
from treemem.runs.state import data_digest
from treemem.runs.study import packed_answers
from treemem.runs.study_file import StudyResults
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS


@dataclass(frozen=True)
class ShallowResult:
    """What a shallow reader reached on equations deeper than those it learnt from; fractions.

    Attributes:
        features: ``"tokens of the equation"`` or ``"tokens of each side"``; both with lengths and depths.
        accuracy: on the deeper equations.
        majority: accuracy of always giving the commoner answer there.
        training_accuracy: on those it learnt from.
    """

    features: str
    accuracy: float
    majority: float
    training_accuracy: float


def token_counts(
    equations: Forest, labels: Sequence[str] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features of equations that tell nothing about their structure.

    Args:
        equations: trees with root ``Equality``.
        labels: what to count; by default the labels of ``equations``. Others are counted in length and depth only.

    Returns:
        Counts of each label in the whole equation, its length and its depth: ``[equations, labels + 2]``; and the same
        of the longer side, of the shorter side and the differences of the two: ``[equations, 3 * (labels + 2)]``.
    """
    sides = equations.split_roots()
    labels = sides.labels if labels is None else labels
    num_sides, num_labels = len(sides), len(labels)
    column_of = {label: column for column, label in enumerate(labels)}
    column = np.array([column_of.get(label, num_labels) for label in sides.labels])[sides.label]
    counted = column < num_labels
    length = np.diff(sides.begin)
    side_of_node = np.repeat(np.arange(num_sides), length)
    cells = np.bincount((side_of_node * num_labels + column)[counted], minlength=num_sides * num_labels)
    counts = cells.reshape(num_sides, num_labels)
    depth = sides.height()[sides.begin[1:] - 1]
    by_side = np.column_stack([counts, length, depth]).astype(np.float32).reshape(-1, 2, num_labels + 2)
    total = by_side.sum(1)
    total[:, -1] = by_side[:, :, -1].max(1)
    swap = by_side[:, 0, -2] < by_side[:, 1, -2]
    by_side[swap] = by_side[swap, ::-1]
    longer, shorter = by_side[:, 0], by_side[:, 1]
    return total, np.concatenate([longer, shorter, np.abs(longer - shorter)], axis=1)


class TokenReader:
    """Gradient-boosted trees on the token counts, lengths and depths of the two sides of equations.

    Args:
        equations: to learn from, trees with root ``Equality`` and ``tree_data["label"]``.
        seed: of the learner.

    Raises:
        RecipeError: they have not both labels.
    """

    def __init__(self, equations: Forest, seed: int = 0) -> None:
        self._labels = equations.labels
        label = equations.tree_data["label"]
        _check_labels(label, "to learn from")
        self._trees = _fitted(token_counts(equations)[1], label, seed)

    def predict(self, equations: Forest) -> NDArray[np.bool_]:
        """Whether each equation is judged true, ``[equations]``."""
        predicted = self._trees.predict(token_counts(equations, self._labels)[1])
        return np.asarray(predicted).astype(bool)


def token_reader_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what boosted trees on token counts reach, in the form of the record of a run, if it is not recorded yet.

    Args:
        done: the study; its data set ``data`` is learned from and scored, its files are scored.
        before: the records so far.
    """
    task, begin = done.task, time.perf_counter()
    forest = done.data["data"]
    digest = data_digest(task.examples(forest))
    files = {name: data_digest(task.examples(part)) for name, part in done.files.items()}
    known = next((record for record in before if record["data"]["hash"] == digest), None)
    if known is not None and files.items() <= known["files"].items():
        return
    split = forest.tree_data["split"]
    reader = TokenReader(forest[split == "train"])
    scores, right = {}, {}
    for name, part in {**{name: forest[split == name] for name in SPLITS}, **done.files}.items():
        examples = task.examples(part)
        predicted, actual = reader.predict(part), examples.targets["label"] == 1
        found = binary_scores(predicted, actual, examples.group)
        scores[name] = [score_row("token-reader", score, task.group) for score in found]
        right[name] = packed_answers(predicted == actual)
    by_part: dict[str, Any] = {"files": files, "scores": scores, "right": right}
    yield {
        "run": "token-reader",
        "row": "boosted trees on token counts",
        "training": {"seed": 0},
        "data": {"name": "data", "hash": digest},
        "seconds": time.perf_counter() - begin,
        **{name: {**(known or {}).get(name, {}), **value} for name, value in by_part.items()},
    }


def shallow_results(equations: Forest, training_depth: int = 7, seed: int = 0) -> list[ShallowResult]:
    """Train gradient-boosted trees on counts of tokens of the equations to ``training_depth``, test them on the deeper.

    Args:
        equations: trees with root ``Equality`` and ``tree_data["label"]``.
        training_depth: the greatest depth to learn from.
        seed: of the learner.

    Raises:
        RecipeError: not both labels on both sides of ``training_depth``.
    """
    label = equations.tree_data["label"]
    training = equations.height()[equations.begin[1:] - 1] <= training_depth
    for part, place in ((training, "to"), (~training, "beyond")):
        _check_labels(label[part], f"{place} depth {training_depth}")
    results = []
    for name, features in zip(("tokens of the equation", "tokens of each side"), token_counts(equations), strict=True):
        reader = _fitted(features[training], label[training], seed)
        deeper, learnt = (float(reader.score(features[part], label[part])) for part in (~training, training))
        share = float(label[~training].mean())
        results.append(ShallowResult(name, deeper, max(share, 1 - share), learnt))
    return results


def _check_labels(label: NDArray[Any], place: str) -> None:
    """Raises ``RecipeError`` unless both labels are there."""
    if set(np.unique(label).tolist()) != {0, 1}:
        raise RecipeError(f"a shallow reader needs true and false equations {place}")


def _fitted(features: NDArray[np.float32], label: NDArray[Any], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):  # its threads wait busily: ten times slower where another process has a core
        return HistGradientBoostingClassifier(max_iter=300, random_state=seed).fit(features, label)
