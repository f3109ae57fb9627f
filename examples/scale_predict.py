"""Predict a folder of Parquet files with many processes, of one machine or of a Ray cluster.

Every file of records gives a file of answers of the same name, one answer for each record. With `--generate` the folder
of records is filled first with generated equations, for a trial:

    python examples/scale_predict.py --generate 20000 --actors 2

The same command goes on with a job that was cut off. On a cluster, set RAY_ADDRESS; docs/scaling.md says more.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from treemem import TreememError, predict_shards
from treemem.errors import RecipeError
from treemem.records import write_records, writing
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees import format_equation


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="equation_verification", help="folder, or name of a task (%(default)s)")
    parser.add_argument("--input", type=Path, default=Path("runs/scale/records"), help="folder (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/scale/answers"), help="folder (%(default)s)")
    parser.add_argument("--actors", type=int, help="files that are predicted at a time (as many as logical CPUs)")
    parser.add_argument("--threshold", type=float, default=0.5, help="of the probability of true, for 1 (%(default)s)")
    parser.add_argument("--generate", type=int, metavar="N", help="make so many equations, unless there are some")
    parser.add_argument(
        "--shard-size", type=int, default=5000, metavar="N", help="records of a made file (%(default)s)"
    )
    return parser.parse_args(arguments)


def generate(folder: Path, size: int, shard_size: int) -> None:
    """Fill a folder with equations in files of ``shard_size``, each equation with its number; nothing where it is full.

    A folder that has its name has all its files.
    """
    with writing(folder):
        if folder.exists():
            return
        if shard_size < 1:
            raise RecipeError(f"--shard-size must be 1 or more, and is {shard_size}")
        equations = generate_equations(size, progress=None)
        unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        for number, begin in enumerate(range(0, len(equations), shard_size)):
            part = enumerate(equations[begin : begin + shard_size], start=begin + 1)
            records = ({"id": place, "equation": format_equation(tree)} for place, tree in part)
            write_records(unfinished / f"{number:05}.parquet", records)
        unfinished.rename(folder)


def run(options: argparse.Namespace) -> bool:
    """Whether every file has its answers."""
    if options.generate is not None:
        generate(options.input, options.generate, options.shard_size)
    done = predict_shards(
        options.checkpoint,
        options.input,
        options.output,
        actors=options.actors,
        threshold=options.threshold,
    )
    counts = done.counts
    print(f"{done.shards} files, {done.done_before} of them done before, {len(done.failed)} without answers")
    print(f"{counts.records:,} records predicted now, {counts.rejected:,} of them bad, in {counts.seconds:.1f} s")
    return not done.failed


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        return 0 if run(options) else 1
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {options.output}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
