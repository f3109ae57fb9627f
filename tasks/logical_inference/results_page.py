"""The page of results: the published table beside ours, made from the records of the runs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from treemem.errors import RecipeError
from treemem.explore import markdown_table, percent_of, plot_accuracy
from treemem.metrics.score import PublishedFigure, Score
from treemem.records import replacing
from treemem.runs import read_study
from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES, SOURCE, published_split
from treemem.tasks.logical_inference.studies import ALL_PAIRS, GOLD_TREES, HELD_OUT
from treemem.tasks.logical_inference.task import LogicalInference
from treemem.tasks.sequence_results import sequence_section
from treemem.tasks.study_tables import (
    RUN_FIELDS,
    Records,
    as_published,
    common_training,
    comparisons,
    cost,
    examples_by_group,
    greatest_group,
    mean_over_seeds,
    overall,
    percent,
    rows_of_networks,
    scores_on,
)

COMMAND = f"python -m treemem.tasks.{LogicalInference.name}.reproduce"
_LONGEST_TRAINED = 6  # operations


def write_page(results: Path, page: Path) -> None:
    """Write the page, and its plot beside it, from the records in ``results``.

    Args:
        results: folder of the records.
        page: the Markdown file; replaced where it is there.
    """
    makers: dict[str, Callable[[Records], str]] = {
        "gold-trees": lambda records: _gold_trees(records, page),
        "gold-trees-longer": _longer,
        "gold-trees-held-out": _held_out,
        "gold-trees-trials": _trials,
        "small": lambda records: _sequences(records, results, page.parent),
    }
    parts = ["# Logical inference", _introduction()]
    parts += [
        make(records) for name, make in makers.items() if (records := read_study(results / f"{name}.jsonl", RUN_FIELDS))
    ]
    parts.append(_published())
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _introduction() -> str:
    return f"""Networks read two formulas of propositional logic and say which of seven relations holds between them
(Bowman et al. 2015). They learn from pairs of few operations and are tested on pairs of more. Published figures are
those of {SOURCE}.

Every number here comes from the records in `docs/results/logical_inference/*.jsonl`, each of a run with its options,
its seconds, the hash of its data and its answers; `{COMMAND}` writes this page from them. Accuracies are percent,
mean ± deviation over seeds; without a deviation, of one seed. Each run keeps the epoch with the best validation
accuracy; the test pairs were scored once, with that epoch."""


def _gold_trees(records: Records, page: Path) -> str:
    """Networks over the given trees, on the published pairs."""
    whole = _on_all_pairs(records)
    scores = {name: mean_over_seeds(runs, "test") for name, runs in whole.items()}
    plot = page.with_name("logical_inference_gold_trees.svg")
    plot_accuracy(
        {name: [score for score in own if score.group != 0] for name, own in scores.items()},
        plot,
        group="operations",
        title="Logical inference over given trees, trained on at most 6 operations",
    )
    training = common_training(records)
    train, validation, test = (examples_by_group(records, part) for part in ("train", "validation", "test"))
    hidden_size = " and ".join(map(str, sorted({run["network"]["options"]["hidden_size"] for run in records})))
    return f"""## Over the given trees

The networks learn from the published pairs of at most {greatest_group(train)} operations and are tested on pairs of up
to {greatest_group(test)}. Every bracket is a node of two children and every word a leaf. Hidden size {hidden_size}, no
dropout in networks or head;
{training["epochs"]} epochs of Adam, batches of {training["batch_size"]}, rate {training["learning_rate"]:g} falling
as half a cosine wave, L2 of {training["weight_decay"]:g}. Splits are the published ones: of the training files'
{train["all"] + validation["all"]:,} pairs of at most {greatest_group(train)} operations every tenth validates. Command:
`{COMMAND} gold-trees --data FOLDER --processes 2`; {cost(records)}. SHA-256 of trees, labels and splits:
{_hashes(records)}.

### By number of operations

{_by_operations(whole)}

12 stands for 12 and more, as in the published files. The published table gives networks over given trees without a
deviation.

![Accuracy by number of operations]({plot.name})

### Against Tree-RNN, pair by pair

The difference of accuracies on the test pairs and its 95 % interval by bootstrap over the pairs, the seeds taken
together; and McNemar's exact test for each seed.

{comparisons(whole, GOLD_TREES[0], "test")}"""


def _longer(records: Records) -> str:
    """One network, trained longer."""
    training = common_training(records)
    return f"""### Trained longer

As above, but for {training["epochs"]} epochs, at a rate from {training["learning_rate"]:g} down, which was chosen
on longer pairs of the training files after test pairs had been scored with the recipe above. Command:
`{COMMAND} gold-trees-longer --data FOLDER --processes 2`; {cost(records)}. SHA-256 of trees, labels and splits:
{_hashes(records)}.

{_by_operations(_on_all_pairs(records))}"""


def _held_out(records: Records) -> str:
    """The systematic splits."""
    common_training(records)
    by_row = rows_of_networks(records, LogicalInference)
    columns = [f"{letter}, {what}" for letter in HELD_OUT for what in ("ours", "published")]
    cells = [_held_out_cells(by_row, name) for name in GOLD_TREES]
    return f"""### With subtrees kept from training

Pairs with a subtree `( and ( not a ) )` (A), `( and ( not _ ) )` (B) or `( and|or ( not _ ) )` (C) on either side are
kept from training; tested are those of 7 and more operations that have one. Networks and training are those over all
pairs. Command: `{COMMAND} gold-trees-held-out --data FOLDER --processes 2`; {cost(records)}. SHA-256 of
trees, labels and splits: {_hashes(records)}.

{markdown_table([["network", *columns], *cells])}"""


def _trials(records: Records) -> str:
    """What was tried before the test."""
    lengths = [length for length in _lengths(scores_on(run, "test") for run in records) if length > _LONGEST_TRAINED]
    rows = [["network", "epochs", "batches of", "rate", "seed", "validation", *map(str, lengths), "7-12", "minutes"]]
    for run in records:
        found = {score.group: score for score in scores_on(run, "test")}
        training = run["training"]
        cells = [percent_of(found[length].accuracy) if length in found else "" for length in lengths]
        beyond, validation = _beyond_training([run]), percent([overall(run, "validation").accuracy])
        recipe = [f"{training[name]:g}" for name in ("epochs", "batch_size", "learning_rate", "seed")]
        rows.append([run["row"], *recipe, validation, *cells, beyond, f"{run['seconds'] / 60:.0f}"])
    return f"""### How the recipe was chosen

With the pairs of 7 to 12 operations in the published training files, on which no network trains and which are no test
pairs, with seeds that are none of those above. Command: `{COMMAND} gold-trees-trials --data FOLDER --processes 2`.

{markdown_table(rows)}"""


def _sequences(records: Records, results: Path, pages: Path) -> str:
    """Networks over words and brackets, on generated pairs."""
    train, test = (examples_by_group(records, part) for part in ("train", "test"))
    about = (
        f"Networks learn from the words and brackets of {train['all']:,} pairs of at most {greatest_group(train)} "
        f"operations, and are tested on {test['all']:,} of up to {greatest_group(test)}."
    )
    return sequence_section(records, results, pages, LogicalInference, COMMAND, about)


def _on_all_pairs(records: Records) -> dict[str, Records]:
    by_row = rows_of_networks(records, LogicalInference)
    return {name: by_row[f"{name}, {ALL_PAIRS}"] for name in GOLD_TREES if f"{name}, {ALL_PAIRS}" in by_row}


def _by_operations(whole: Mapping[str, Records]) -> str:
    """Accuracy by number of operations, the published one under ours."""
    scores = {name: mean_over_seeds(runs, "test") for name, runs in whole.items()}
    figures = _published_accuracy()
    by_group = {score.group: score for own in scores.values() for score in own}
    lengths = _lengths(scores.values())
    rows = [["network", *map(str, lengths), "7-12"]]
    rows.append(["majority class", *(percent_of(by_group[length].majority) for length in lengths), ""])
    for name, own in scores.items():
        found = {score.group: score for score in own}
        cells = [
            percent_of(found[length].accuracy, found[length].deviation) if length in found else "" for length in lengths
        ]
        rows.append([name, *cells, _beyond_training(whole[name])])
        published = [figures.get((name, published_split(str(length)))) for length in lengths]
        if any(published):
            rows.append(["_published_", *("" if each is None else as_published(each) for each in published), ""])
    rows.append(["pairs", *(str(by_group[length].examples) for length in lengths), ""])
    return markdown_table(rows)


def _lengths(scores: Iterable[Sequence[Score]]) -> list[int]:
    """The numbers of operations, from 1, that there are scores of."""
    return sorted({score.group for own in scores for score in own if isinstance(score.group, int) and score.group > 0})


def _hashes(records: Records) -> str:
    """The names of the data and their hashes.

    Raises:
        RecipeError: two runs on data of one name are of other data.
    """
    by_data: dict[str, str] = {}
    for run in records:
        name, digest = run["data"]["name"], run["data"]["hash"]
        if by_data.setdefault(name, digest) != digest:
            raise RecipeError(
                f"the run {run.get('run', run['row'])!r} is of other data than the first one on {name!r}, and one "
                "table cannot say of which; keep the records of one of them"
            )
    return ", ".join(f"{name} `{digest[:16]}`" for name, digest in by_data.items())


def _beyond_training(runs: Records) -> str:
    """Accuracy over all test pairs of more operations than any for training; empty where a run has none of them."""
    accuracy = []
    for run in runs:
        scores = scores_on(run, "test")
        deep = [score for score in scores if isinstance(score.group, int) and score.group > _LONGEST_TRAINED]
        if not deep:
            return ""
        right = sum(score.accuracy * score.examples for score in deep)
        accuracy.append(right / sum(score.examples for score in deep))
    return percent(accuracy)


def _held_out_cells(by_row: Mapping[str, Records], name: str) -> list[str]:
    figures = _published_accuracy()
    cells = [name]
    for letter in HELD_OUT:
        runs = by_row.get(f"{name}, {letter}", [])
        cells.append(percent([overall(run, "test").accuracy for run in runs]) if runs else "")
        published = figures.get((name, published_split(letter)))
        cells.append("" if published is None else as_published(published))
    return cells


def _published() -> str:
    """What others reached on the published pairs with networks over words and brackets."""
    figures = _published_accuracy()
    columns = [*map(str, range(7, 13)), *HELD_OUT]
    names = list(dict.fromkeys(network for network, _ in figures if network not in GOLD_TREES))
    rows = [
        [
            name,
            *(
                "" if each is None else as_published(each)
                for each in (figures.get((name, published_split(column))) for column in columns)
            ),
        ]
        for name in names
    ]
    parsing = [
        f"the trees of {each.network} have a parsing F1 of {as_published(each)}"
        for each in PUBLISHED_FIGURES
        if each.metric == "parsing f1"
    ]
    return f"""## Published figures of sequence networks

Of {SOURCE}, trained on the published pairs of at most 6 operations, on which no sequence network here has been trained
yet; the recipe `logical_inference/published` has their setting. There {" and ".join(parsing)}.

{markdown_table([["network", *columns], *rows])}"""


def _published_accuracy() -> dict[tuple[str, str], PublishedFigure]:
    return {(each.network, each.split): each for each in PUBLISHED_FIGURES if each.metric == "accuracy"}
