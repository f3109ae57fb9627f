"""Published figures on the published division of the treebank."""

from __future__ import annotations

from treemem.metrics.score import PublishedFigure

SOURCE = "Shen et al. 2019 (Ordered Memory), table 3"

_PERCENT: tuple[tuple[str, int, float, float | None], ...] = (
    ("Tai et al. 2015, gold trees", 2, 88.0, None),
    ("Tai et al. 2015, gold trees", 5, 51.0, None),
    ("Munkhdalai & Yu 2017, gold trees", 2, 89.3, None),
    ("Munkhdalai & Yu 2017, gold trees", 5, 53.1, None),
    ("Looks et al. 2017, gold trees", 2, 89.4, None),
    ("Looks et al. 2017, gold trees", 5, 52.3, None),
    ("Choi et al. 2018, induced trees", 2, 90.7, None),
    ("Choi et al. 2018, induced trees", 5, 53.7, None),
    ("Havrylov et al. 2019, induced trees", 2, 90.2, 0.2),
    ("Havrylov et al. 2019, induced trees", 5, 51.5, 0.4),
    ("Ordered Memory, GloVe", 2, 90.4, None),
    ("Ordered Memory, GloVe", 5, 52.2, None),
    ("Ordered Memory, ELMo", 2, 92.0, None),
    ("Ordered Memory, ELMo", 5, 55.2, None),
)

PUBLISHED_FIGURES = tuple(
    PublishedFigure.of_percent(network, f"test, {classes} classes", "accuracy", value, spread, SOURCE)
    for network, classes, value, spread in _PERCENT
)
