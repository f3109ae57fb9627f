"""A baseline that does not read the structure of equations: boosted trees on counts of tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.metrics.accuracy import binary_scores
from treemem.metrics.score import score_columns
from treemem.runs.study_file_run import StudyResults
from treemem.runs.study_records import packed_answers
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS


def token_counts(equations: Forest, labels: Sequence[str]) -> NDArray[np.float32]:
    """Return features of equations without their structure.

    Args:
        equations: trees with root ``Equality``.
        labels: the labels to count. Others count in length and depth only.

    Returns:
        Counts of each label, length and depth of the longer side, of the shorter side and their absolute differences:
        ``[equations, 3 * (labels + 2)]``.
    """
    sides = equations.split_roots()
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
    swap = by_side[:, 0, -2] < by_side[:, 1, -2]
    by_side[swap] = by_side[swap, ::-1]
    longer, shorter = by_side[:, 0], by_side[:, 1]
    return np.concatenate([longer, shorter, np.abs(longer - shorter)], axis=1)


class TokenReader:
    """Gradient-boosted trees on the token counts, lengths and depths of the two sides of labelled equations."""

    def __init__(self, equations: Forest, seed: int = 0) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        self._labels = equations.split_roots().labels
        self._trees = HistGradientBoostingClassifier(max_iter=300, random_state=seed)
        with threadpool_limits(1):  # its threads wait busily: ten times slower if another process has a core
            self._trees.fit(token_counts(equations, self._labels), equations.tree_data["label"])

    def predict(self, equations: Forest) -> NDArray[np.bool_]:
        """Return whether each equation is judged true, ``[equations]``."""
        return np.asarray(self._trees.predict(token_counts(equations, self._labels))).astype(bool)


def token_reader_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the record of the scores of boosted trees on token counts, if it is not in ``before``.

    They learn from the data set of the study; it is scored, and so are the files.
    """
    task, begin = done.task, time.perf_counter()
    forest = done.data[done.study.data]
    digest = task.examples(forest).digest()
    files = {name: task.examples(part).digest() for name, part in done.files.items()}
    known = next((record for record in before if record["data"]["hash"] == digest), None)
    if known is not None and files.items() <= known["files"].items():
        return
    split = forest.tree_data["split"]
    reader = TokenReader(forest[split == "train"])
    scores, correct = {}, {}
    for name, part in {**{name: forest[split == name] for name in SPLITS}, **done.files}.items():
        examples = task.examples(part)
        predicted, actual = reader.predict(part), examples.targets["label"] == 1
        by_group = binary_scores(predicted, actual, examples.group)
        scores[name] = score_columns(by_group, task.group)
        correct[name] = packed_answers(predicted == actual)
    by_part: dict[str, Any] = {"files": files, "scores": scores, "right": correct}
    yield {
        "run": "token-reader",
        "row": "boosted trees on token counts",
        "training": {"seed": 0},
        "data": {"name": done.study.data, "hash": digest},
        "seconds": time.perf_counter() - begin,
        **{name: {**(known or {}).get(name, {}), **value} for name, value in by_part.items()},
    }
