"""The checks that scikit-learn has for estimators.

They make ``X`` a matrix of numbers, so the estimators that are checked here make a tree of each of its rows. One epoch
is enough for all checks but those of accuracy, which ``poor_score`` leaves out; tests of trees say what is learnt. All
rows are one batch: a row of weight 2 then trains as a row that stands there twice, which smaller batches cannot do.
scikit-learn itself leaves out checks of what the estimators do not have, such as ``transform`` and ``partial_fit``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from treemem import Forest
from treemem.sklearn import TreeClassifier, TreeRegressor


class RowsAsTrees:
    """Makes a tree of each row, whose leaves are its numbers; the rest is the estimator itself."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, True
        for kind in filter(None, (tags.classifier_tags, tags.regressor_tags)):
            kind.poor_score = True
        return tags

    def _forest(self, X: Any, reader: Any, *, fitting: bool) -> Forest:
        rows = validate_data(self, X, reset=fitting, dtype=np.float64)
        return Forest.from_nodes(reader.read(["row", *row]) for row in rows.tolist())


class RowClassifier(RowsAsTrees, TreeClassifier):
    pass


class RowRegressor(RowsAsTrees, TreeRegressor):
    pass


def of_rows(estimator: type[Any]) -> Any:
    return estimator(
        "Tree-RNN", number="Number", hidden_size=4, epochs=1, batch_size=256, early_stopping=False, random_state=0
    )


@parametrize_with_checks([of_rows(RowClassifier), of_rows(RowRegressor)])
def test_an_estimator_passes_the_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
