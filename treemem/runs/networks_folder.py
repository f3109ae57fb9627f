"""Networks trained one after the other in one folder: the results of those that were trained on the same data.

Each network's folder, ``OUTPUT/NETWORK``, holds the card of the data that it was trained on, with their hash, and its
rows of results. A later run with other networks, or other data, leaves them there; what is gathered are the rows of all
networks of the same hash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treemem.metrics.score import Score, row_score
from treemem.records import read_records, replacing, write_records, writing

RESULTS, EVALUATION, CARD = "results.jsonl", "evaluation.jsonl", "data.md"
"""Names of the files of rows of scores, on the test and on further files, and of the card of the data."""

_DIGEST = "SHA-256 of trees, labels and splits: "
_logger = logging.getLogger(__name__)


def take_back_results(folder: Path, files: Sequence[str] = (RESULTS,)) -> None:
    """Remove what an earlier run of a network wrote, before the network is trained anew.

    Raises:
        RecipeError: it cannot be removed.
    """
    if folder.is_dir():
        with writing(folder):
            for file in files:
                (folder / file).unlink(missing_ok=True)


def write_results(folder: Path, rows: Iterable[Mapping[str, Any]], card: str, digest: str) -> None:
    """Write the rows of a network, or of several, and the card of their data with its hash.

    Args:
        folder: of the network, or of all.
        rows: those of :func:`treemem.runs.score_row`.
        card: of the data.
        digest: the hash of the data, :meth:`treemem.data.Examples.digest`.

    Raises:
        RecipeError: they cannot be written.
    """
    with replacing(folder / CARD) as temporary:
        temporary.write_bytes(f"{card.rstrip()}\n\n{_DIGEST}{digest}\n".encode())
    write_records(folder / RESULTS, rows)


def recorded_digest(folder: Path) -> str:
    """The hash of the data that a network was trained on, out of the card in its folder; empty where that has none."""
    card = folder / CARD
    last = card.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2] if card.is_file() else ""
    return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else ""


def gathered_rows(output: Path, first: Sequence[str], digest: str, file: str = RESULTS) -> list[dict[str, Any]]:
    """The rows of the networks in ``output``: of the ``first`` ones, then of others that were trained on the same data.

    Those that were trained on other data are left out, and named in the log.

    Args:
        output: the folder of the networks' folders.
        first: names of networks.
        digest: the hash of the data, :meth:`treemem.data.Examples.digest`.
        file: where a network's rows are.

    Raises:
        RecipeError: one of the ``first`` has no such file.
    """
    others = []
    for path in sorted(output.glob(f"*/{CARD}")):
        name = path.parent.name
        if name in first or not path.with_name(file).exists():
            continue
        if recorded_digest(path.parent) == digest:
            others.append(name)
        else:
            _logger.info("%s was trained on other data, so that its scores are left out of %s", name, output / file)
    return [record.fields for name in (*first, *others) for record in read_records(output / name / file)]


def scores_by_network(rows: Iterable[Mapping[str, Any]], group: str) -> dict[str, list[Score]]:
    """The scores of each network, out of rows of :func:`treemem.runs.score_row` with that ``group``."""
    scores: dict[str, list[Score]] = {}
    for row in rows:
        scores.setdefault(row["network"], []).append(row_score(row, group))
    return scores
