"""The measurement of how well the networks of a study complete equations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.native.threads import torch_threads
from treemem.progress_bar import progress_bar
from treemem.runs.study import packed_answers, read_study, recorded_model
from treemem.runs.study_file import StudyFolder, StudyResults
from treemem.tasks.equation_verification.completion.blanks import BlankedEquations, blanked_test, read_blanked
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_verification.completion.completion import complete
from treemem.tasks.equation_verification.completion.ranks import RANKS, Completion, commonest_first


def completion_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, study: str, equations: int, file: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a record for each trained network of a study that has none yet.

    A record has the fields ``run``, ``network``, ``seed``, ``weights`` (their hash), ``seconds``, ``scores`` (by rank,
    a list of :class:`RankScore`), ``constant`` (the same of :func:`commonest_first`), ``right`` (packed: which
    equations have the class rank 1), ``data`` (name, hash and number of equations) and ``command``.

    Args:
        done: the study of completion.
        before: its records so far.
        study: ``TASK/STUDY`` whose networks complete. Its records are beside those of completion.
        equations: number of equations, spread evenly over all.
        file: the user's file with equations and blanks; by default the test equations of ``study``.

    Raises:
        RecipeError: no network of ``study`` is recorded, the records are of other equations, or the file is missing.
        CheckpointError: a checkpoint is damaged.
    """
    folder_name, _, study_name = study.rpartition("/")
    folder = StudyFolder.find(folder_name)
    trained = read_study(done.results.parent / folder.page / f"{study_name}.jsonl")
    if not trained:
        raise RecipeError(f"no network of {study} is recorded; run treemem reproduce {folder_name} {study_name} first")
    candidates = make_candidates()
    if file is None:
        blanked = blanked_test(type(done.data)(folder.study(study_name), done.folder / "data")["data"], candidates)
    elif file in done.data.files:
        blanked = read_blanked(done.data.files[file], candidates)
    else:
        raise RecipeError(f"the study {done.study.name} needs a file of equations: give --files {file}=PATH")
    blanked = blanked.spread(equations)
    data = {"name": done.study.name, "hash": blanked.digest, "equations": len(blanked)}
    other = next((record for record in before if record["data"] != data), None)
    if other is not None:
        raise RecipeError(
            f"the record of {other['run']!r} has other equations ({other['data']['hash'][:12]}...) than these "
            f"({blanked.digest[:12]}...); complete the same ones, or remove the records in {done.results}"
        )
    known = {record["run"] for record in before}
    command = f"treemem reproduce {done.study.folder.name} {done.study.name}"
    for record in trained:
        name = f"{record['row']}/seed-{record['training']['seed']}"
        if name not in known and (done.folder / record["run"]).exists():
            yield {**_record(name, record, done.folder, blanked, candidates), "data": data, "command": command}


def _record(
    name: str, trained: Mapping[str, Any], folder: Path, equations: BlankedEquations, candidates: Candidates
) -> dict[str, Any]:
    """Complete the equations with a trained model, and return the fields of its record."""
    model = recorded_model(folder, trained)
    begin = time.perf_counter()
    with progress_bar(len(equations), name, None) as bar, torch_threads(1):
        found = complete(model, equations.forest, equations.blanks, candidates, advance=bar.update)
    constant_ranks = {"class": commonest_first(equations.blanks.original, candidates.value_class)}
    constant = Completion(found.depth, found.best, constant_ranks)
    return {
        "run": name,
        "network": trained["row"],
        "seed": trained["training"]["seed"],
        "weights": trained["weights"],
        "seconds": time.perf_counter() - begin,
        "scores": {rank: [asdict(score) for score in found.scores(rank)] for rank in RANKS},
        "constant": [asdict(score) for score in constant.scores("class")],
        "right": {"class": packed_answers(found.ranks["class"][:, 0] == 1)},
    }
