"""A page of sentences whose trees differ between runs although all runs predict correctly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError
from treemem.induction.drawing import printable, shown_word, tree_svg
from treemem.induction.page_template import page_template
from treemem.induction.scores import sentence_f1
from treemem.induction.spans import bracketings, check_same_words, tree_spans
from treemem.records import check_writable, write_text
from treemem.trees.formats.brackets import format_brackets
from treemem.trees.tree import Tree


@dataclass(frozen=True)
class RunTrees:
    """What one run made of a corpus.

    Attributes:
        trees: of each sentence.
        correct: whether the prediction for each sentence was correct; for a pair of sentences, that of the pair. None:
            the run predicts nothing.
    """

    trees: Sequence[Tree]
    correct: Sequence[bool] | None = None


def differing_sentences(runs: Mapping[str, RunTrees]) -> list[int]:
    """Return the sentences that all runs predict correctly with different trees, in the order of the corpus.

    A sentence that occurs again with the same trees counts once.

    Raises:
        RecipeError: fewer than two runs, runs of different numbers of sentences, or a run without predictions.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
        >>> one, other = parse_brackets("(X a (X b c))"), parse_brackets("(X (X a b) c)")
        >>> runs = {"seed 0": RunTrees([one, one, one], [True] * 3), "seed 1": RunTrees([one, other, one], [True] * 3)}
        >>> differing_sentences(runs)
        [1]
    """
    if len(runs) < 2:
        raise RecipeError(f"trees differ between at least two runs; there are {len(runs)}")
    _check_lengths(runs, len(next(iter(runs.values())).trees))
    correct = [run.correct for run in runs.values() if run.correct is not None]
    if len(correct) < len(runs):
        name = next(name for name, run in runs.items() if run.correct is None)
        raise RecipeError(f"{name} has no predictions; name the sentences to show (sentences=)")
    chosen, seen = [], set()
    for sentence, trees in enumerate(zip(*(run.trees for run in runs.values()), strict=True)):
        if len(set(trees)) > 1 and all(of_run[sentence] for of_run in correct) and trees not in seen:
            seen.add(trees)
            chosen.append(sentence)
    return chosen


def write_tree_page(
    path: str | Path,
    gold: Sequence[Tree],
    runs: Mapping[str, RunTrees],
    *,
    title: str = "Trees that differ and yet compute the same",
    sentences: Sequence[int] | None = None,
    most: int = 30,
    overwrite: bool = False,
) -> None:
    """Write an HTML page with the gold tree of each sentence and the trees of the runs beside it.

    Runs with the same tree share a picture. Each has its F1 (:func:`treemem.induction.sentence_f1`) and the runs that
    predicted correctly. Constituents that the gold tree does not have are dashed. The page needs no other file and no
    script, and its text is escaped.

    Args:
        path: the file.
        gold: the gold trees.
        runs: by name, in the order in which they are shown.
        title: of the page.
        sentences: which to show; by default those of :func:`differing_sentences`.
        most: how many to show, the first ones.
        overwrite: replace the file if it exists.

    Raises:
        RecipeError: runs of different numbers of sentences, too few runs, sentences that do not exist, or a file that
            exists or cannot be written.
        GraphError: trees of one sentence with different words; names the run.
    """
    check_writable(path, overwrite=overwrite)
    page = _page(gold, runs, title, sentences, most)
    write_text(path, page, overwrite=overwrite)


def _page(
    gold: Sequence[Tree], runs: Mapping[str, RunTrees], title: str, sentences: Sequence[int] | None, most: int
) -> str:
    _check(gold, runs, sentences)
    chosen = differing_sentences(runs) if sentences is None else list(sentences)
    shown = chosen[: checked_count("most", most)]
    findings = (
        f"Of {len(gold)} sentences, {len(chosen)} (each counted once) are predicted correctly by all {len(runs)} runs "
        "with trees that are not all the same."
        if sentences is None
        else f"{len(chosen)} of {len(gold)} sentences were chosen."
    )
    return page_template("treemem.induction", "tree_page.html").render(
        title=printable(title),
        found=findings,
        shown_all=len(shown) == len(chosen),
        names=[printable(name) for name in runs],
        sections=[_section(number, gold[number], runs) for number in shown],
    )


def _section(number: int, gold: Tree, runs: Mapping[str, RunTrees]) -> dict[str, Any]:
    """One sentence with its trees; runs with the same tree together, in the order of the first of each."""
    names_of: dict[Tree, list[str]] = {}
    for name, run in runs.items():
        names_of.setdefault(run.trees[number], []).append(name)
    spans = set(tree_spans(gold))
    trees: list[dict[str, Any]] = [
        {"runs": [], "caption": "", "picture": tree_svg(gold), "text": format_brackets(gold)}
    ]
    for tree, names in names_of.items():
        same = ", the gold tree" if set(tree_spans(tree)) == spans else ""
        trees.append(
            {
                "runs": [{"name": printable(name), "verdict": _verdict(runs[name], number)} for name in names],
                "caption": f"F1 {100 * sentence_f1(gold, tree):.1f} %{same}",
                "picture": tree_svg(tree, spans),
                "text": format_brackets(tree),
            }
        )
    words = " ".join(shown_word(leaf.label) for leaf in gold.leaves())
    return {"number": number, "words": words, "trees": trees}


def _verdict(run: RunTrees, sentence: int) -> str | None:
    if run.correct is None:
        return None
    return "correct" if run.correct[sentence] else "wrong"


def _check(gold: Sequence[Tree], runs: Mapping[str, RunTrees], sentences: Sequence[int] | None) -> None:
    if not runs:
        raise RecipeError("there are no runs to show; give at least two")
    of_gold = bracketings(gold)
    _check_lengths(runs, len(of_gold))
    for name, run in runs.items():
        try:
            check_same_words(of_gold, bracketings(run.trees))
        except GraphError as error:
            raise GraphError(f"{name}: {error}") from error
    for sentence in sentences or ():
        if not 0 <= sentence < len(gold):
            raise RecipeError(f"there is no sentence {sentence}; there are {len(gold)}, from 0")


def _check_lengths(runs: Mapping[str, RunTrees], num_sentences: int) -> None:
    for name, run in runs.items():
        predictions = num_sentences if run.correct is None else len(run.correct)
        if not len(run.trees) == predictions == num_sentences:
            counts = f"{len(run.trees)} trees and {predictions} predictions"
            raise RecipeError(f"{name} has {counts}; give {num_sentences} of each")
