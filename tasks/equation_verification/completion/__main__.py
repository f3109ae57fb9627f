"""Complete equations with a trained model of equation verification, and rank the correct fillings."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from treemem.checked_options import checked_count
from treemem.checkpoint import load, load_pretrained
from treemem.errors import TreememError, for_commands
from treemem.explore import markdown_table
from treemem.native.threads import torch_threads
from treemem.progress_bar import progress_bar
from treemem.records import check_writable, write_records
from treemem.tasks.equation_verification.completion.blanks import BlankedEquations, blanked_test, read_blanked
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates, read_candidates
from treemem.tasks.equation_verification.completion.completion import complete
from treemem.tasks.equation_verification.completion.ranks import RANKS, SHOWN, Completion
from treemem.tasks.equation_verification.completion.suggestions import fill
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.tasks.equation_verification.generation.quotas import PUBLISHED_SIZE
from treemem.trees.forest import Forest

GENERATED = "generated"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rank the candidates for the blanks of equations, or fill one equation."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    add = parser.add_argument
    add(
        "checkpoint", nargs="?", metavar="CHECKPOINT", help="folder of a checkpoint or run; default: the packaged model"
    )
    add("--equations", default=GENERATED, metavar="SOURCE", help="a file or folder, or 'generated' (%(default)s)")
    add("--size", type=int, default=PUBLISHED_SIZE, help="number of equations to generate (%(default)s)")
    add("--seed", type=int, default=0, help="of generated equations, blanks and draws (%(default)s)")
    add("--candidates", metavar="FILE", help="candidates with their classes; default: the published ones")
    add("--limit", type=int, metavar="N", help="use N equations, spread evenly over all")
    add("--output", metavar="FILE", help="write the ranks of each equation to FILE, as JSONL")
    add("--overwrite", action="store_true", help="replace FILE if it exists")
    add("--fill", metavar="EQUATION", help="print the best fillings of the '?' in EQUATION, and no ranks")
    add("--top", type=int, default=10, help="number of fillings to print (%(default)s)")
    add("--collapse", action="store_true", help="print only the best filling of each value class")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        with torch_threads(1):
            _run(options)
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    checked_count("seed", options.seed, least=0)
    if options.limit is not None:
        checked_count("--limit", options.limit)
    if options.output not in (None, "-"):
        check_writable(options.output, overwrite=options.overwrite, source=options.equations)
    model = load_pretrained() if options.checkpoint is None else load(options.checkpoint).float()
    candidates = make_candidates() if options.candidates is None else read_candidates(options.candidates)
    if options.fill is not None:
        fillings = fill(model, options.fill, top=options.top, collapse=options.collapse, candidates=candidates)
        rows = [[filling.text, f"{filling.score:.3f}", f"{filling.probability:.4f}"] for filling in fillings]
        print(markdown_table([["filling", "score", "probability"], *rows]))
        return
    equations = _equations(options, candidates)
    if options.limit is not None:
        equations = equations.spread(options.limit)
    begin = time.perf_counter()
    with progress_bar(len(equations), "completing", None) as bar:
        completion = complete(
            model, equations.forest, equations.blanks, candidates, seed=options.seed, advance=bar.update
        )
    seconds = time.perf_counter() - begin
    print(f"{len(equations)} equations in {seconds:.1f} s, {len(equations) / seconds:.1f} a second\n")
    print("\n\n".join(f"rank: {name}\n\n{depth_table(completion, name)}" for name in RANKS))
    if options.output is not None:
        write_records(
            options.output, _records(equations, completion, candidates), format="jsonl", overwrite=options.overwrite
        )


def _equations(options: argparse.Namespace, candidates: Candidates) -> BlankedEquations:
    source = options.equations
    if source != GENERATED and not Path(source).is_dir():
        return read_blanked(source, candidates, seed=options.seed)
    if source == GENERATED:
        forest = generate_equations(options.size, seed=options.seed, progress=None)
    else:
        forest = Forest.load(source)
    return blanked_test(forest, candidates, seed=options.seed)


def depth_table(completion: Completion, name: str) -> str:
    """Return top-k accuracy in percent and the mean reciprocal rank by depth, as a Markdown table."""
    rows = [["depth", "equations", *(f"top {most}" for most in SHOWN), "MRR"]]
    for score in completion.scores(name):
        accuracy = [f"{100 * score.top[most - 1]:.2f}" for most in SHOWN]
        rows.append([str(score.group), str(score.equations), *accuracy, f"{score.mrr:.4f}"])
    return markdown_table(rows)


def _records(equations: BlankedEquations, completion: Completion, candidates: Candidates) -> Iterator[dict[str, Any]]:
    original = equations.blanks.original.tolist()
    for number, identity in enumerate(equations.ids):
        ranks = {name: completion.ranks[name][number].tolist() for name in RANKS}
        yield {
            "id": identity,
            "depth": int(completion.depth[number]),
            "original": candidates.text(original[number]),
            "best": candidates.text(int(completion.best[number])),
            **{name: rank if name == "random_collapse" else rank[0] for name, rank in ranks.items()},
        }


if __name__ == "__main__":
    sys.exit(main())
