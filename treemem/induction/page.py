"""A page of sentences whose trees differ from run to run although all runs predict right."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError
from treemem.induction.drawing import printable, shown_word, tree_svg
from treemem.induction.scores import sentence_f1
from treemem.induction.spans import Span, bracketings, check_same_words, checked_trees, tree_spans
from treemem.records import check_writable, replacing
from treemem.trees.brackets import format_brackets
from treemem.trees.tree import Tree

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #27323f; background: #fff; margin: 2rem auto; max-width: 100rem;
  padding: 0 1.5rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.05rem; margin: 0 0 .5rem; overflow-wrap: anywhere }
section { border-top: 1px solid #c9d1d9; padding: 1.2rem 0 }
p { max-width: 46rem }
.trees { display: flex; gap: 2rem; overflow-x: auto; align-items: flex-end }
figure { margin: 0; flex: none }
svg { display: block }
figcaption { margin: 0 .5rem }
b { display: block; font-weight: 600 }
.wrong { color: #b3261e }
details { font-size: .85rem; overflow-wrap: anywhere }
details p { max-width: none; margin: .3rem 0 }
"""


@dataclass(frozen=True)
class RunTrees:
    """What one run made of a corpus.

    Attributes:
        trees: of each sentence.
        right: whether the run's prediction for each was right. Where a prediction is of a pair of sentences, it is that
            of both.
    """

    trees: Sequence[Tree]
    right: Sequence[bool]


def differing_sentences(runs: Mapping[str, RunTrees]) -> list[int]:
    """The sentences that all runs predict right, though not all with the same tree; in the order of the corpus.

    A sentence that occurs again with the same trees is given once.

    Raises:
        RecipeError: fewer than two runs, or runs of other numbers of sentences.
        GraphError: trees that stand in no list.

    Example:
        >>> from treemem.trees.brackets import parse_brackets
        >>> one, other = parse_brackets("(X a (X b c))"), parse_brackets("(X (X a b) c)")
        >>> runs = {"seed 0": RunTrees([one, one, one], [True] * 3), "seed 1": RunTrees([one, other, one], [True] * 3)}
        >>> differing_sentences(runs)
        [1]
    """
    if len(runs) < 2:
        raise RecipeError(f"trees differ between at least two runs; there are {len(runs)}")
    _check_lengths(runs, len(checked_trees(next(iter(runs.values())).trees)))
    chosen, seen = [], set()
    for sentence, trees in enumerate(zip(*(run.trees for run in runs.values()), strict=True)):
        if len(set(trees)) > 1 and all(run.right[sentence] for run in runs.values()) and trees not in seen:
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
    """Write :func:`tree_page` to an HTML file.

    Args:
        path: the file.
        gold, runs, title, sentences, most: as there.
        overwrite: replace the file where it is there.

    Raises:
        RecipeError, GraphError: as there; or the file is there, or cannot be written.
    """
    check_writable(path, overwrite=overwrite)
    text = tree_page(gold, runs, title=title, sentences=sentences, most=most)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def tree_page(
    gold: Sequence[Tree],
    runs: Mapping[str, RunTrees],
    *,
    title: str = "Trees that differ and yet compute the same",
    sentences: Sequence[int] | None = None,
    most: int = 30,
) -> str:
    """One HTML page, sentence by sentence: the given tree and beside it the trees of the runs.

    Runs with the same tree share a picture. Each has its F1 (:func:`treemem.induction.sentence_f1`) and says which runs
    predicted right; what it brackets and the given tree does not is dashed. The page needs no other file and no script,
    its text is escaped, and it depends on the arguments alone.

    Args:
        gold: the given trees.
        runs: by name, in the order in which they are to be shown.
        title: of the page.
        sentences: which to show; by default those of :func:`differing_sentences`.
        most: how many to show, the first ones.

    Raises:
        RecipeError: runs of other numbers of sentences, too few runs, or sentences that are not there.
        GraphError: trees of one sentence with other words; names the run.
    """
    _check(gold, runs, sentences)
    chosen = differing_sentences(runs) if sentences is None else list(sentences)
    shown = chosen[: checked_count("most", most)]
    names = ", ".join(html.escape(printable(name)) for name in runs)
    found = (
        f"Of {len(gold)} sentences, {len(chosen)} (each counted once) are predicted right by all {len(runs)} runs with "
        "trees that are not all the same."
        if sentences is None
        else f"{len(chosen)} of {len(gold)} sentences were chosen."
    )
    body = "\n".join(_section(number, gold[number], runs) for number in shown)
    safe_title = html.escape(printable(title))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{safe_title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{safe_title}</h1>
<p>{found} Shown: {"all" if len(shown) == len(chosen) else f"the first {len(shown)}"}. Runs: {names}.</p>
<p>Each word has its line, and the same line in every tree of its sentence. A vertical line is a constituent: it joins
what its branches lead to. Constituents that the given tree does not have are dashed, with an open dot. F1 is of the
sentence, without the span of the whole sentence.</p>
{body}
</body>
</html>
"""


def _section(number: int, gold: Tree, runs: Mapping[str, RunTrees]) -> str:
    """One sentence with its trees; runs with the same tree together, in the order of the first of each."""
    names_of: dict[Tree, list[str]] = {}
    for name, run in runs.items():
        names_of.setdefault(run.trees[number], []).append(name)
    words = html.escape(" ".join(shown_word(leaf.label) for leaf in gold.leaves()))
    spans = set(tree_spans(gold))
    figures, texts = [_figure(gold, "<b>given</b>", None)], [_text("given", gold)]
    for tree, names in names_of.items():
        verdicts = "".join(_verdict(name, runs[name].right[number]) for name in names)
        same = ", as given" if set(tree_spans(tree)) == spans else ""
        figures.append(_figure(tree, f"{verdicts}F1 {100 * sentence_f1(gold, tree):.1f} %{same}", spans))
        texts.append(_text(", ".join(names), tree))
    return "\n".join(
        [
            f"<section><h2>Sentence {number}: {words}</h2>",
            '<div class="trees">',
            *figures,
            "</div>",
            f"<details><summary>as text</summary>{''.join(texts)}</details></section>",
        ]
    )


def _figure(tree: Tree, caption: str, gold: set[Span] | None) -> str:
    return f"<figure><figcaption>{caption}</figcaption>{tree_svg(tree, gold)}</figure>"


def _verdict(name: str, right: bool) -> str:
    word = "right" if right else '<span class="wrong">wrong</span>'
    return f"<b>{html.escape(printable(name))}: {word}</b>"


def _text(name: str, tree: Tree) -> str:
    return f"<p>{html.escape(printable(name))}: <code>{html.escape(format_brackets(tree))}</code></p>"


def _check(gold: Sequence[Tree], runs: Mapping[str, RunTrees], sentences: Sequence[int] | None) -> None:
    if not runs:
        raise RecipeError("there are no runs whose trees could be shown")
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
        try:
            num_trees = len(checked_trees(run.trees))
        except GraphError as error:
            raise GraphError(f"{name}: {error}") from error
        if num_trees != num_sentences or len(run.right) != num_sentences:
            raise RecipeError(
                f"{name} has {num_trees} trees and {len(run.right)} predictions, not {num_sentences} of each"
            )
