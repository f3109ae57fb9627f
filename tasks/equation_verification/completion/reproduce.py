"""Equation completion by the networks of a study of equation verification: one command that goes on where it stopped.

The records of completed sets are kept in RESULTS/SET.jsonl, from which the page is written; what is in there is not
run again, and all of it is of the same equations. Completed with is each run that STUDY records and RUNS holds, as
``python -m treemem.tasks.equation_verification.reproduce table-2`` leaves them; a run that still goes on has no record.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treemem.checkpoint import load
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.ops.threads import torch_threads
from treemem.records import write_records, writing
from treemem.runs import packed_answers, read_study
from treemem.runs.progress import progress_bar
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_verification.completion.completion import complete
from treemem.tasks.equation_verification.completion.ranks import RANKS, Completion, commonest_first
from treemem.tasks.equation_verification.completion.readers import BlankedEquations, blanked_test, read_blanked
from treemem.tasks.equation_verification.completion.results_page import COMMAND, write_page
from treemem.tasks.equation_verification.study_data import StudyData
from treemem.tasks.study_command import run_command

SETS = ("generated", "published_sample")
"""The true test equations of the studies of equation verification, and a sample of the published ones."""

_STUDY = Path("docs/results/equation_verification/table-2.jsonl")
_logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Complete what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; none: the page alone")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--study",
        type=Path,
        default=_STUDY,
        help="the records of the runs (%(default)s)",
    )
    parser.add_argument("--sample", type=Path, metavar="FILE", help="published equations with blanks")
    parser.add_argument("--limit", type=int, metavar="N", help="so many equations of each set, spread evenly over all")
    parser.add_argument(
        "--results", type=Path, default=Path("docs/results/equation_completion"), help="folder (%(default)s)"
    )
    parser.add_argument("--page", type=Path, default=Path("docs/results/equation_completion.md"), help="(%(default)s)")
    return run_command(_run, parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> None:
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        raise RecipeError(f"no set is called {unknown[0]!r}; there are {', '.join(SETS)}")
    if options.limit is not None and options.limit < 1:
        raise RecipeError(f"--limit must be at least 1, not {options.limit}")
    candidates = make_candidates()
    for name in options.sets:
        equations = _equations(name, options, candidates)
        if options.limit is not None:
            equations = equations.spread(options.limit)
        runs = trained_runs(options.study, options.runs)
        complete_set(equations, candidates, runs, options.results / f"{name}.jsonl", name, _command(name, options))
    records = {name: _records_of_one_set(options.results / f"{name}.jsonl") for name in SETS}
    if not any(records.values()):
        raise RecipeError(f"there are no records in {options.results}; name sets to complete: {', '.join(SETS)}")
    write_page({name: of_set for name, of_set in records.items() if of_set}, options.page)


def _command(name: str, options: argparse.Namespace) -> str:
    """What makes the records of a set, without the places where its files are."""
    parts = [COMMAND, name]
    if options.study != _STUDY:
        parts.append(f"--study {options.study.name}")
    if name == "published_sample":
        parts.append(f"--sample {options.sample.name}")
    if options.limit is not None:
        parts.append(f"--limit {options.limit}")
    return " ".join(parts)


def _equations(name: str, options: argparse.Namespace, candidates: Candidates) -> BlankedEquations:
    if name == "generated":
        return blanked_test(StudyData(options.runs).equations, candidates)
    if options.sample is None:
        raise RecipeError("the set 'published_sample' needs --sample, the file of the sample")
    return read_blanked(options.sample, candidates)


class TrainedRun(NamedTuple):
    """A trained model of a study: the name of its network, its seed and its folder."""

    network: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """What records call it."""
        return f"{self.network}/seed-{self.seed}"


def trained_runs(study: Path, folder: Path) -> list[TrainedRun]:
    """The runs that a study has records of, in their order; their folders are within ``folder``.

    Raises:
        RecipeError: there are none.
    """
    found = [
        TrainedRun(record["row"], record["training"]["seed"], folder / record["run"]) for record in read_study(study)
    ]
    if not found:
        raise RecipeError(f"{study} has no records of trained runs; train some, or name the file that has with --study")
    return found


def complete_set(
    equations: BlankedEquations,
    candidates: Candidates,
    runs: Sequence[TrainedRun],
    results: Path,
    name: str,
    command: str,
) -> list[dict[str, Any]]:
    """Complete the equations with each model that is there and has no record yet, and give the records of ``runs``.

    A record has the fields ``run``, ``network``, ``seed``, ``weights`` (their hash), ``seconds``, ``scores`` (by rank,
    a list of :class:`RankScore`), ``constant`` (the same of :func:`commonest_first`), ``right`` (packed: which
    equations have the class rank 1), ``data`` (name, hash and number of equations) and ``command``.

    Args:
        equations: what to complete.
        candidates: what may stand in the blanks.
        runs: trained models; those without a folder are left out, and the log says so.
        results: the JSONL file of the records.
        name: of the equations.
        command: what makes the records.

    Raises:
        RecipeError: a record of other equations, or of a run with other weights.
        CheckpointError: a folder without a whole checkpoint.
    """
    records = {record["run"]: record for record in _records_of_one_set(results)}
    data = {"name": name, "hash": equations.digest, "equations": len(equations)}
    _check_same_set(records.values(), data, results)
    with writing(results.parent):
        results.parent.mkdir(parents=True, exist_ok=True)
    for run in runs:
        if run.name in records and run.folder.exists():
            _check_same_weights(records[run.name], load(run.folder), results)
    for run in runs:
        if run.name in records:
            continue
        if not run.folder.exists():
            _logger.info("%s: %s left out, there is no folder %s", name, run.name, run.folder)
            continue
        records[run.name] = {**_record(run, equations, candidates), "data": data, "command": command}
        write_records(results, records.values())
        _logger.info("%s: %s done, %.0f s", name, run.name, records[run.name]["seconds"])
    return [records[run.name] for run in runs if run.name in records]


def _record(run: TrainedRun, equations: BlankedEquations, candidates: Candidates) -> dict[str, Any]:
    """Complete the equations with a model, and say how well that went."""
    model = load(run.folder)
    begin = time.perf_counter()
    with progress_bar(len(equations), run.name, None) as bar, torch_threads(1):
        found = complete(model, equations.forest, equations.blanks, candidates, advance=bar.update)
    seconds = time.perf_counter() - begin
    constant = Completion(
        found.depth, found.best, {"class": commonest_first(equations.blanks.original, candidates.value_class)}
    )
    return {
        "run": run.name,
        "network": run.network,
        "seed": run.seed,
        "weights": _hash_of_weights(model),
        "seconds": seconds,
        "scores": {rank: [asdict(score) for score in found.scores(rank)] for rank in RANKS},
        "constant": [asdict(score) for score in constant.scores("class")],
        "right": {"class": packed_answers(found.ranks["class"][:, 0] == 1)},
    }


def _hash_of_weights(model: Model) -> str:
    content = hashlib.sha256()
    for name, value in model.state_dict().items():
        content.update(name.encode())
        content.update(np.ascontiguousarray(value.cpu().numpy()).tobytes())
    return content.hexdigest()


def _records_of_one_set(results: Path) -> list[dict[str, Any]]:
    """The records of a file, which are all of the same equations; none where there is no file yet.

    Raises:
        RecipeError: they are not.
    """
    records = read_study(results)
    if records:
        _check_same_set(records[1:], records[0]["data"], results)
    return records


def _check_same_set(records: Iterable[Mapping[str, Any]], data: Mapping[str, Any], results: Path) -> None:
    """Make sure that records are of the equations ``data``.

    Raises:
        RecipeError: one is of others, with which these cannot be compared.
    """
    other = next((record for record in records if record["data"] != data), None)
    if other is not None:
        those, these = (f"{each['equations']} equations ({each['hash'][:12]}...)" for each in (other["data"], data))
        raise RecipeError(
            f"{results} may hold one set of equations: its run {other['run']!r} is of {those}, not of these {these}; "
            f"complete the same ones, as {other['command']!r} did, or remove the lines of either, or name another "
            "folder with --results"
        )


def _check_same_weights(record: Mapping[str, Any], model: Model, results: Path) -> None:
    """Make sure that a record is of a model with the weights that this one has.

    Raises:
        RecipeError: it is of others.
    """
    if record["weights"] != _hash_of_weights(model):
        raise RecipeError(
            f"{results} has the run {record['run']!r} with other weights; remove that line to run it again, or name "
            "another folder with --results"
        )


if __name__ == "__main__":
    sys.exit(main())
