"""Equation completion by the networks of a study of equation verification: one command that goes on where it stopped.

The records of completed sets are kept in RESULTS/SET.jsonl, from which the page is written; what is in there is not
run again. Completed with is each run that STUDY records and RUNS holds, as
``python -m treemem.tasks.equation_verification.reproduce table-2`` leaves them; a run that still goes on has no record.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treemem.checkpoint import load
from treemem.errors import RecipeError, TreememError
from treemem.records import write_records, writing
from treemem.task import Model
from treemem.tasks.equation_completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_completion.completion import complete
from treemem.tasks.equation_completion.ranks import RANKS, Completion, commonest_first
from treemem.tasks.equation_completion.readers import BlankedEquations, blanked_test, read_blanked
from treemem.tasks.equation_completion.results_page import write_page
from treemem.tasks.equation_verification.study_data import StudyData
from treemem.training import packed_answers, read_study
from treemem.training.progress import progress_bar
from treemem.training.threads import torch_threads

SETS = ("generated", "published_sample")
"""The true test equations of the studies of equation verification, and a sample of the published ones."""

_logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Complete what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m treemem.tasks.equation_completion.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; none: the page alone")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--study",
        type=Path,
        default=Path("docs/results/equation_verification/table-2.jsonl"),
        help="the records of the runs (%(default)s)",
    )
    parser.add_argument("--sample", type=Path, metavar="FILE", help="published equations with blanks")
    parser.add_argument("--limit", type=int, metavar="N", help="so many equations of each set, spread evenly over all")
    parser.add_argument(
        "--results", type=Path, default=Path("docs/results/equation_completion"), help="folder (%(default)s)"
    )
    parser.add_argument("--page", type=Path, default=Path("docs/results/equation_completion.md"), help="(%(default)s)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        _run(options)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        raise RecipeError(f"no set is called {unknown[0]!r}; there are {', '.join(SETS)}")
    if options.limit is not None and options.limit < 1:
        raise RecipeError(f"--limit must be at least 1, not {options.limit}")
    candidates = make_candidates()
    for name in options.sets:
        equations = _equations(name, options, candidates)
        command = f"python -m treemem.tasks.equation_completion.reproduce {name}"
        if name == "published_sample":
            command += f" --sample {options.sample.name}"
        if options.limit is not None:
            equations, command = equations.spread(options.limit), f"{command} --limit {options.limit}"
        runs = trained_runs(options.study, options.runs)
        complete_set(equations, candidates, runs, options.results / f"{name}.jsonl", name, command)
    records = {name: read_study(options.results / f"{name}.jsonl") for name in SETS}
    if not any(records.values()):
        raise RecipeError(f"there are no records in {options.results}; name sets to complete: {', '.join(SETS)}")
    write_page({name: of_set for name, of_set in records.items() if of_set}, options.page)


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
    """Complete the equations with each model that has no record yet, and give the records of all, in their order.

    A record has the fields ``run``, ``network``, ``seed``, ``weights`` (their hash), ``data`` (name, hash and number of
    equations), ``command``, ``seconds``, ``scores`` (by rank, a list of :class:`RankScore`), ``constant`` (the same of
    :func:`commonest_first`) and ``right`` (packed: which equations have the class rank 1).

    Args:
        equations: what to complete.
        candidates: what may stand in the blanks.
        runs: trained models.
        results: the JSONL file of the records.
        name: of the equations.
        command: what makes the records.

    Raises:
        RecipeError: a record of a run with other weights or equations.
        CheckpointError: a folder without a whole checkpoint.
    """
    records = {record["run"]: record for record in read_study(results)}
    data = {"name": name, "hash": equations.digest, "equations": len(equations)}
    with writing(results.parent):
        results.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    for run in runs:
        model = load(run.folder)
        identity = {"weights": _hash_of_weights(model), "data": data}
        if run.name in records:
            _check_same(identity, records[run.name], results)
            done[run.name] = records[run.name]
            continue
        begin = time.perf_counter()
        with progress_bar(len(equations), run.name, None) as bar, torch_threads(1):
            found = complete(model, equations.forest, equations.blanks, candidates, advance=bar.update)
        seconds = time.perf_counter() - begin
        constant = Completion(
            found.depth, found.best, {"class": commonest_first(equations.blanks.original, candidates.value_class)}
        )
        done[run.name] = records[run.name] = {
            "run": run.name,
            "network": run.network,
            "seed": run.seed,
            **identity,
            "command": command,
            "seconds": seconds,
            "scores": {rank: [asdict(score) for score in found.scores(rank)] for rank in RANKS},
            "constant": [asdict(score) for score in constant.scores("class")],
            "right": {"class": packed_answers(found.ranks["class"][:, 0] == 1)},
        }
        write_records(results, _in_order(records, runs))
        _logger.info("%s: %s done, %.0f s", name, run.name, seconds)
    return [done[run.name] for run in runs]


def _hash_of_weights(model: Model) -> str:
    content = hashlib.sha256()
    for name, value in model.state_dict().items():
        content.update(name.encode())
        content.update(np.ascontiguousarray(value.cpu().numpy()).tobytes())
    return content.hexdigest()


def _check_same(identity: Mapping[str, Any], record: Mapping[str, Any], results: Path) -> None:
    changed = [name for name, value in identity.items() if record[name] != value]
    if changed:
        raise RecipeError(
            f"{results} has the run {record['run']!r} with other {' and '.join(changed)}; remove that line to run it "
            "again, or write to another folder"
        )


def _in_order(records: Mapping[str, dict[str, Any]], runs: Sequence[TrainedRun]) -> Iterator[dict[str, Any]]:
    """The records of ``runs`` in their order, after those of other runs."""
    names = [run.name for run in runs]
    yield from (record for name, record in records.items() if name not in names)
    yield from (records[name] for name in names if name in records)


if __name__ == "__main__":
    sys.exit(main())
