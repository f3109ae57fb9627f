"""The measurement of how well the networks of a study complete equations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from treemem.errors import RecipeError
from treemem.native.threads import torch_threads
from treemem.progress_bar import progress_bar
from treemem.runs.study import recorded_model
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.equation_verification.completion.blanks import blanked_test, read_blanked
from treemem.tasks.equation_verification.completion.candidates import make_candidates
from treemem.tasks.equation_verification.completion.completion import complete
from treemem.tasks.equation_verification.completion.ranks import Completion, commonest_first
from treemem.tasks.equation_verification.own_rates import rows_with_own_rates


def completion_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, equations: int, file: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a record for each network with its own rate that has none yet.

    A record has the fields ``run``, ``network``, ``seed``, ``set``, ``hash`` (of the equations and blanks), ``scores``
    (by rank, a list of :class:`RankScore`) and ``constant`` (the same of :func:`commonest_first`).

    Args:
        done: the study whose networks complete.
        before: the records so far.
        equations: number of equations, spread evenly over all.
        file: the user's file with equations and blanks; by default the test equations of the study.

    Raises:
        RecipeError: the file is not given.
        CheckpointError: a checkpoint is damaged.
    """
    candidates = make_candidates()
    if file is None:
        blanked = blanked_test(done.data[done.study.data], candidates)
    elif file in done.data.files:
        blanked = read_blanked(done.data.files[file], candidates)
    else:
        raise RecipeError(f"the study {done.study.name} needs a file of equations: give --files {file}=PATH")
    blanked = blanked.spread(equations)
    known = {record["run"] for record in before if record["hash"] == blanked.digest}
    for network, runs in rows_with_own_rates(done.study, done.records).items():
        for record in runs:
            if record["run"] in known or not (done.folder / record["run"]).exists():
                continue
            model = recorded_model(done.folder, record)
            with progress_bar(len(blanked), record["run"], None) as bar, torch_threads(1):
                completion = complete(model, blanked.forest, blanked.blanks, candidates, advance=bar.update)
            ranks = {"class": commonest_first(blanked.blanks.original, candidates.value_class)}
            constant = Completion(completion.depth, completion.best, ranks)
            yield {
                "run": record["run"],
                "network": network,
                "seed": record["training"]["seed"],
                "set": file or "generated",
                "hash": blanked.digest,
                "scores": {rank: [asdict(score) for score in completion.scores(rank)] for rank in completion.ranks},
                "constant": [asdict(score) for score in constant.scores("class")],
            }
