"""Merge what several jobs wrote into folders of their own: records of studies, and outputs of ``treemem train``.

Equal records are kept once. Two records of one run that differ are refused before anything is written.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem import checkpoint
from treemem.errors import RecipeError
from treemem.model_digest import weights_digest
from treemem.records import writing
from treemem.runs.network_folder import CARD, RECIPE, RESULTS, NetworkFolder, card_of, locked_results, recorded_digest
from treemem.runs.recipe import load_recipe
from treemem.runs.run import seed_folder
from treemem.runs.study_records import add_records, read_study

_logger = logging.getLogger(__name__)
_KEYS = (("run",), ("row", "optimizer", "learning_rate"))
"""Fields that tell runs, and trials of the comparison, apart."""


@dataclass(frozen=True)
class Merged:
    """How many records were merged into a file or into the folder of a network.

    Attributes:
        place: the file, or the folder of a network.
        added: records that were not there.
        equal: records that were there, or came twice.
    """

    place: Path
    added: int
    equal: int


def holds_runs(folder: Path) -> bool:
    """Return whether a folder is an output of ``treemem train``, with a folder for each network."""
    return any(folder.glob(f"*/{RECIPE}"))


def merge_records(folders: Sequence[Path], output: Path) -> list[Merged]:
    """Merge the JSONL files of the records of studies in some folders, file by file.

    Args:
        folders: with records, such as ``docs/results`` of several clones.
        output: the folder to write, which may hold records.

    Raises:
        RecipeError: two records of one run differ, or a file cannot be written.
        ParseError: a file is not of records.
    """
    names = dict.fromkeys(
        path.relative_to(folder) for folder in folders for path in sorted(folder.rglob("*.jsonl")) if _is_visible(path)
    )
    if not names:
        raise RecipeError(f"there are no records, *.jsonl, in {', '.join(map(str, folders))}")
    planned = {name: _FileMerge.of(name, folders, output) for name in names}
    return [merge.write() for merge in planned.values()]


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".")


@dataclass(frozen=True)
class _FileMerge:
    """The merge of the files of one name.

    Attributes:
        output: the file to write.
        by: names of the fields that tell records apart.
        records: new records.
        equal: how many others there were.
    """

    output: Path
    by: Sequence[str]
    records: Sequence[Mapping[str, Any]]
    equal: int

    @classmethod
    def of(cls, name: Path, folders: Sequence[Path], output: Path) -> _FileMerge:
        """Compare the records of all files of a name.

        Raises:
            RecipeError: two records of one run differ.
        """
        of_files = {file: read_study(file) for file in (output / name, *(folder / name for folder in folders))}
        records = [(file, record) for file, of_file in of_files.items() for record in of_file]
        by = _identifying_fields([*of_files.values()])
        known: dict[tuple[Any, ...], tuple[Path, Mapping[str, Any]]] = {}
        new, equal = [], 0
        for file, record in records:
            key = _key(record, by)
            if key in known:
                _check_equal(known[key], (file, record), ", ".join(str(record.get(field)) for field in by))
                equal += file != output / name
                continue
            known[key] = file, record
            if file != output / name:
                new.append(record)
        return cls(output / name, by, new, equal)

    def write(self) -> Merged:
        """Add the new records to the file."""

        def merged(before: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
            _check_equal((self.output, before), (self.output, record), str(record.get(self.by[0])))
            return before

        if self.records:
            add_records(self.output, self.records, self.by, merged=merged)
        return Merged(self.output, len(self.records), self.equal)


def _key(record: Mapping[str, Any], by: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(record.get(field)) for field in by)


def _identifying_fields(of_files: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Return the fields that identify records: those of runs or trials, or as few first ones as differ in each file."""
    fields = tuple(next((records[0] for records in of_files if records), ()))
    prefixes = [fields[:count] for count in range(1, len(fields) + 1)]
    for by in [*(key for key in _KEYS if {*key} <= {*fields}), *prefixes]:
        if by in _KEYS or all(len({_key(record, by) for record in records}) == len(records) for records in of_files):
            return by
    return fields


def _check_equal(first: tuple[Path, Mapping[str, Any]], second: tuple[Path, Mapping[str, Any]], called: str) -> None:
    """Check that two records of one run are equal; a field that one of them lacks is None.

    Raises:
        RecipeError: they differ; the message names the fields.
    """
    (file, before), (other, record) = first, second
    different = [name for name in {**before, **record} if before.get(name) != record.get(name)]
    if different:
        raise RecipeError(
            f"{file} and {other} have different records of {called!r}: {', '.join(different)}. Nothing was merged; "
            "remove the record of the run that is not to count, and merge again"
        )


def merge_runs(folders: Sequence[Path], output: Path) -> list[Merged]:
    """Merge outputs of ``treemem train``, seed by seed, with checkpoints and records.

    A seed without recorded scores is left out, with a message in the log.

    Args:
        folders: outputs, each with a folder for each network.
        output: the folder to write, which may be such an output.

    Raises:
        RecipeError: networks were trained on other data or with other options; two records of one seed differ, or a
            folder to be written holds other weights; a folder cannot be written.
    """
    sources: dict[str, list[NetworkFolder]] = {}
    for folder in [output, *folders]:
        order = [*dict.fromkeys(row.get("network") for row in read_study(folder / RESULTS))]
        paths = sorted(path.parent for path in folder.glob(f"*/{RECIPE}"))
        for path in sorted(paths, key=lambda path: order.index(path.name) if path.name in order else len(order)):
            if folder == output and not (path / RESULTS).is_file():
                continue  # an interrupted merge has recorded nothing yet
            sources.setdefault(path.name, []).append(_network_folder(path))
    _check_same_data([folder for of_network in sources.values() for folder in of_network])
    with locked_results(output):
        plans = {name: _seeds_to_copy(of_network, output / name) for name, of_network in sources.items()}
        return [_copy(sources[name], output / name, seeds) for name, seeds in plans.items()]


def _network_folder(path: Path) -> NetworkFolder:
    """Return the folder of a network with its recipe, task and card of the data."""
    recipe = load_recipe(path / RECIPE)
    digest = recorded_digest(path)
    if not digest:
        raise RecipeError(f"{path / CARD} is missing or has no hash of the data; the training command writes it again")
    return NetworkFolder(path, recipe, recipe.make_task(), card_of(path), digest)


def _check_same_data(folders: Sequence[NetworkFolder]) -> None:
    """Check that all networks were trained on the same data."""
    for folder in folders:
        if folder.digest != folders[0].digest:
            raise RecipeError(
                f"{folder.path} was trained on other data than {folders[0].path}. A folder holds networks of the same "
                "data; merge them into two folders"
            )


def _seeds_to_copy(folders: Sequence[NetworkFolder], output: Path) -> dict[int, NetworkFolder]:
    """Return the seeds that are not in the output, each with the folder that it comes from.

    Raises:
        RecipeError: options differ, or two records of one seed.
    """
    known: dict[int, tuple[Path, Mapping[str, Any]]] = {}
    chosen: dict[int, NetworkFolder] = {}
    for folder in folders:
        problem = folders[0].differences_of(folder)
        if problem:
            raise RecipeError(
                f"{folder.path} and {folders[0].path} were trained with different options: {problem}. Merge them into "
                "two folders"
            )
        for seed, record in folder.records().items():
            if seed in known:
                _check_equal(known[seed], (folder.path, record), f"seed {seed}")
                continue
            known[seed] = folder.path, record
            if folder.path != output:
                _check_place(seed_folder(output, seed), record)
                chosen[seed] = folder
        missing = [seed for seed in folder.seeds_there() if seed not in known]
        if missing and folder.path != output:
            _logger.info(
                "%s: the seeds %s have no recorded scores and are left out; the training command records them",
                folder.path, ", ".join(map(str, missing)),
            )  # fmt: skip
    return chosen


def _check_place(place: Path, record: Mapping[str, Any]) -> None:
    """Check that the folder of a seed is absent, or holds the weights of a record, as after an interrupted merge."""
    if place.exists() and weights_digest(checkpoint.load(place)) != record["weights"]:
        raise RecipeError(f"{place} holds another run than the record to merge; choose another output folder")


def _copy(folders: Sequence[NetworkFolder], output: Path, seeds: Mapping[int, NetworkFolder]) -> Merged:
    """Copy the folders of seeds, then record them."""
    known = sum(len(folder.records()) for folder in folders if folder.path != output)
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        for seed, folder in seeds.items():
            place = seed_folder(output, seed)
            if not place.exists():
                temporary = place.with_name(f".{place.name}.tmp")
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(temporary)
                shutil.copytree(seed_folder(folder.path, seed), temporary, ignore=shutil.ignore_patterns(".*"))
                temporary.rename(place)
    if seeds:
        folders[0].at(output).add_records({seed: folder.records()[seed] for seed, folder in seeds.items()})
    return Merged(output, len(seeds), known - len(seeds))
