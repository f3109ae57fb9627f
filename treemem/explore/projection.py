"""Encodings as points in a plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.explore.decimals import shown


def projection(encodings: NDArray[np.float64]) -> dict[str, Any]:
    """The first two principal components of encodings.

    Args:
        encodings: ``[encodings, hidden_size]``.

    Returns:
        ``points``: of each encoding its two coordinates, or None where it is not finite; ``variance``: what part of the
        variance each component has, in percent.
    """
    finite = np.asarray(np.isfinite(encodings).all(axis=1))
    centred = encodings[finite] - encodings[finite].mean(0) if finite.any() else encodings[finite]
    points = np.zeros((len(centred), 2))
    variance = np.zeros(2)
    kept = min(2, *centred.shape)
    if kept and np.abs(centred).max() > 0:
        from sklearn.decomposition import PCA

        components = PCA(kept, svd_solver="full")
        points[:, :kept] = components.fit_transform(centred / np.abs(centred).max()) * np.abs(centred).max()
        variance[:kept] = components.explained_variance_ratio_
    coordinates = [[float(shown(x)) for x in point] for point in points]
    placed = iter(coordinates)
    return {
        "points": [next(placed) if known else None for known in finite.tolist()],
        "variance": [f"{100 * part:.1f}" for part in variance],
    }
