"""The published tables and figures of equation verification, made anew: one command that goes on where it stopped.

The records of finished runs are kept in RESULTS/STUDY.jsonl, from which the page is written; what is in there is not
run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.records import write_records, writing
from treemem.runs import read_study, run_study
from treemem.runs.state import data_digest
from treemem.tasks.equation_verification.packaging import package_model
from treemem.tasks.equation_verification.readers import read_equations
from treemem.tasks.equation_verification.results_page import write_page
from treemem.tasks.equation_verification.studies import TOKEN_READER, token_reader_record
from treemem.tasks.equation_verification.study_data import DEEP_VALIDATION, DEEPER, StudyData
from treemem.tasks.equation_verification.study_list import (
    CHOOSING,
    STUDIES,
    WITH_DEEP_VALIDATION,
    WITH_FURTHER_FILES,
)
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.tasks.study_command import check_studies, run_command, study_parser
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

_HELD = ("all", "some", "none")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = study_parser(EquationVerification.name, __doc__, STUDIES)
    parser.add_argument("--dev", type=Path, metavar="FILE", help="labelled published equations, to be scored too")
    parser.add_argument("--sample", type=Path, metavar="FILE", help="published equations with a field holds, likewise")
    parser.add_argument(
        "--package", metavar="RUN", help="make this run, such as best/Tree-LSTM/seed-12093, the model that comes along"
    )
    return run_command(_run, parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> None:
    check_studies(options, STUDIES)
    data = StudyData(options.runs)
    published = _files(options.dev, options.sample) if options.studies else {}
    for name in options.studies:
        runs = STUDIES[name]()
        files = {DEEP_VALIDATION: data.deep_validation()} if name in WITH_DEEP_VALIDATION else {}
        if name in WITH_FURTHER_FILES:
            files |= {DEEPER: data.deeper(), **published}
        if name == "table-2":
            _judge_by_tokens(options.results / f"{TOKEN_READER}.jsonl", data.equations, files)
        run_study(
            EquationVerification(),
            runs,
            data.forests({run.data for run in runs}),
            folder=options.runs,
            results=options.results / f"{name}.jsonl",
            files=files,
            splits=("train", "validation") if name in CHOOSING else SPLITS,
            processes=options.processes,
        )
    write_page(options.results, options.page, data.equations)
    if options.package is not None:
        record = _recorded(options.package, options.results)
        equations = data.forests([record["data"]["name"]])[record["data"]["name"]]
        package_model(record, options.runs, equations, Path(__file__).with_name("pretrained"))


def _recorded(run: str, results: Path) -> dict[str, Any]:
    """The record of a run.

    Raises:
        RecipeError: no study has it.
    """
    study = run.partition("/")[0]
    records = read_study(results / f"{study}.jsonl") if study in STUDIES else []
    found = next((record for record in records if record["run"] == run), None)
    if found is None:
        raise RecipeError(f"no study in {results} has a run {run!r}; it is named like best/NETWORK, RECIPE/seed-SEED")
    return found


def _judge_by_tokens(path: Path, forest: Forest, files: Mapping[str, Forest]) -> None:
    """Record what boosted trees on token counts reach, where that is not recorded yet."""
    task = EquationVerification()
    before = next(iter(read_study(path)), None)
    same_data = before is not None and before["data"]["hash"] == data_digest(task.examples(forest))
    hashes = {name: data_digest(task.examples(part)) for name, part in files.items()}
    if before is not None and same_data and hashes.items() <= before["files"].items():
        return
    record = token_reader_record(forest, files)
    if before is not None and same_data:
        record |= {name: {**before[name], **record[name]} for name in ("files", "scores", "right")}
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_records(path, [record])


def _files(dev: Path | None, sample: Path | None) -> dict[str, Forest]:
    """The published equations that are here to be scored.

    Raises:
        RecipeError: equations without a label, or a sample of which it is not said where they hold.
    """
    files = {}
    if dev is not None:
        files["published_dev"] = read_equations(dev, variables="indexed", strict=True).forest
    if sample is not None:
        forest = read_equations(sample, variables="indexed", keep=["holds"], strict=True).forest
        for held in _HELD:
            files[f"published_sample, holds {held}"] = forest[forest.tree_data["holds"] == held]
            if not len(files[f"published_sample, holds {held}"]):
                raise RecipeError(
                    f"{sample} has no equation whose field 'holds' is {held!r}; a sample has {', '.join(_HELD)}"
                )
    for name, forest in files.items():
        unlabelled = int((forest.tree_data["label"] < 0).sum())
        if unlabelled:
            path = dev if name == "published_dev" else sample
            raise RecipeError(f"{path} has {unlabelled} equations without a label; all that are scored need one")
    return files


if __name__ == "__main__":
    sys.exit(main())
