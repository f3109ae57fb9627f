"""Projection of encodings to a plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.explore.decimals import shown


def projection(encodings: NDArray[np.float64]) -> dict[str, Any]:
    """Return the first two principal components of encodings.

    Args:
        encodings: ``[encodings, hidden_size]``.

    Returns:
        ``points``: the two coordinates of each encoding, None if it is not finite; ``variance``: the explained variance
        of each component, in percent.
    """
    finite = np.asarray(np.isfinite(encodings).all(axis=1))
    centred = encodings[finite] - encodings[finite].mean(0) if finite.any() else encodings[finite]
    points = np.zeros((len(centred), 2))
    variance = np.zeros(2)
    kept = min(2, *centred.shape)
    if kept and centred.any():
        from sklearn.decomposition import PCA

        components = PCA(kept, svd_solver="full")
        points[:, :kept] = components.fit_transform(centred)
        variance[:kept] = components.explained_variance_ratio_
    coordinates = [[float(shown(x)) for x in point] for point in points]
    placed = iter(coordinates)
    return {
        "points": [next(placed) if known else None for known in finite.tolist()],
        "variance": [f"{100 * part:.1f}" for part in variance],
    }
