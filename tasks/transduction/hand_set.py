"""Controllers with weights set by hand: what a network with a memory can do, whatever it learns.

The controller is a plain recurrent cell, ``h = tanh(W x + U h + b)``, with so large weights that each unit is on (1) or
off (-1). The memory holds one-hot codes of target symbols, pushed and popped with strength 1. So the result does not
depend on the length of the source.

Command: ``python -m treemem.tasks.transduction.hand_set``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from treemem.errors import RecipeError, TreememError, for_commands
from treemem.explore.tables import markdown_table
from treemem.model import Model
from treemem.native.threads import torch_threads
from treemem.networks import NetworkConfig
from treemem.networks.sequences.sequence_to_sequence.layer import END
from treemem.runs import evaluate
from treemem.runs.page_tables import percent
from treemem.tasks.transduction.data import TransductionDataOptions
from treemem.tasks.transduction.grammars import Kind, symbols_of
from treemem.tasks.transduction.task import Transduction

SOLVED: dict[Kind, tuple[str, ...]] = {
    "copy": ("queue", "deque"),
    "reversal": ("stack", "deque"),
    "bigram_flip": ("queue", "deque"),
    "svo_sov": ("queue", "deque"),
    "gender": ("queue", "deque"),
}
"""The memories with which a controller here solves a kind."""

RELATIVES = 42
"""How many relative clauses of ``svo_sov`` may be open: as many as 128 symbols can open."""

DELAY = 8
"""Steps from reading an article of ``gender`` to pushing it; at most ``DELAY - 2`` words may stand before its noun."""

_GAIN = 40.0


class _Term(NamedTuple):
    """``weight * column + bias``: 1 if a condition holds, -1 if not, and 0 of what was not there before the first step.

    Attributes:
        source: ``"x"``: what is read, ``"h"``: the units, ``"r"``: the readout.
    """

    source: Literal["x", "h", "r"]
    columns: list[int]
    weight: float = 1.0
    bias: float = 0.0


@dataclass
class _Program:
    """The units of a controller by name, and when they are on.

    Attributes:
        number: of each symbol that is read.
        codes: the symbols in the memory.
        read_from: where the codes begin in the readout.
        units: numbers by name.
        rules: of the parts ``"encoder"`` and ``"decoder"``: for each unit its terms, and their least sum.
    """

    number: dict[str, int]
    codes: list[str]
    read_from: int
    units: dict[str, int] = field(default_factory=dict)
    rules: dict[str, dict[int, tuple[list[_Term], float]]] = field(default_factory=dict)

    def _unit(self, name: str) -> int:
        return self.units.setdefault(name, len(self.units))

    def set(self, name: str, terms: Sequence[_Term], least: float | None = None, parts: str = "encoder") -> None:
        """Say when a unit is on: if the sum of the terms is at least this; by default if all conditions hold."""
        for part in parts.split():
            self.rules.setdefault(part, {})[self._unit(name)] = [*terms], len(terms) if least is None else least

    def reads(self, *symbols: str) -> _Term:
        """One of these symbols is read now."""
        return _Term("x", [self.number[symbol] for symbol in symbols], 2.0, -1.0)

    def was(self, *names: str) -> _Term:
        """One of these units, of which at most one can be, was on a step ago."""
        return _Term("h", [self._unit(name) for name in names], 1.0, len(names) - 1.0)

    def was_not(self, name: str) -> _Term:
        """A unit was off a step ago."""
        return _Term("h", [self._unit(name)], -1.0)

    def front(self, code: str) -> _Term:
        """The memory returned a code a step ago."""
        return _Term("r", [self.read_from + self.codes.index(code)])


class _Actions(NamedTuple):
    """What the units do: for each code the units of which one pushes it; and whether each step pops."""

    pushed_by: dict[str, list[str]]
    pops: bool


def _copied(program: _Program, source: list[str]) -> tuple[_Actions, _Actions]:
    """Push each symbol."""
    for symbol in source:
        program.set(f"read {symbol}", [program.reads(symbol)])
    return _Actions({symbol: [f"read {symbol}"] for symbol in source}, False), _Actions({}, True)


def _flipped(program: _Program, source: list[str]) -> tuple[_Actions, _Actions]:
    """Hold the first symbol of a pair, push the second, and then the first, while that of the next pair is held."""
    first, was = "first of a pair", program.was
    program.set("begun", [], 0)
    program.set(first, [program.was_not(first)], 0)  # before the first step it was neither
    for symbol in source:
        held = was(f"hold {symbol}", f"keep {symbol}")
        program.set(f"hold {symbol}", [program.reads(symbol), program.was_not(first)], 1)
        program.set(f"push second {symbol}", [program.reads(symbol), was(first)])
        program.set(f"keep {symbol}", [held, was(first), was("begun")])
        program.set(f"push first {symbol}", [held, program.was_not(first), was("begun")])
    pushed_by = {symbol: [f"push second {symbol}", f"push first {symbol}"] for symbol in source}
    return _Actions(pushed_by, False), _Actions({}, True)


def _verb_last(program: _Program, source: list[str]) -> tuple[_Actions, _Actions]:
    """Hold the first verb that is not in a relative clause, and push it after the rest; units count the clauses."""
    verbs = [symbol for symbol in source if symbol.startswith("vi")]
    program.set("begun", [], 0)
    for depth in range(1, RELATIVES + 1):
        nearby = [
            program.was(f"open {place}") for place in range(depth - 1, depth + 2) if 1 <= place <= RELATIVES
        ]  # on up to the number of clauses, so their sum tells whether it is depth - 1, depth, or more
        edge = _Term("h", [], bias=1.0 if depth == 1 else -1.0 if depth == RELATIVES else 0.0)
        opens, closes = program.reads("rpi"), program.reads(*verbs)._replace(weight=-2.0, bias=1.0)
        has_begun = program.was("begun")._replace(weight=2.0, bias=-2.0)
        program.set(f"open {depth}", [*nearby, edge, opens, closes, has_begun], 1)
    for symbol in source:
        inside = [program.was("open 1")] if symbol in verbs else []
        program.set(f"read {symbol}", [program.reads(symbol), *inside])
    for verb in verbs:
        held = program.was(f"main {verb}", f"held {verb}")
        program.set(f"main {verb}", [program.reads(verb), program.was_not("open 1")])
        program.set(f"held {verb}", [held, program.was("begun")])
        program.set(f"last {verb}", [held, program.was("begun"), program.reads(END)])
    pushed_by = {
        symbol.replace("i", "o", 1) if symbol != "rpi" else "rpo": [f"read {symbol}"]
        + ([f"last {symbol}"] if symbol in verbs else [])
        for symbol in source
    }
    return _Actions(pushed_by, False), _Actions({}, True)


def _agreeing(program: _Program, source: list[str]) -> tuple[_Actions, _Actions]:
    """Push each symbol some steps late; an article learns its gender in between, when its noun is read."""
    target_of = {symbol: f"{symbol[0]}g{symbol[2:]}" if symbol[0] == "w" else f"g{symbol[1:]}" for symbol in source}
    target_of = {**target_of, "and": "und"}
    nouns = {article: [symbol for symbol in source if symbol[:2] == noun] for article, noun in _NOUNS.items()}
    every_noun = [noun for of_gender in nouns.values() for noun in of_gender]
    both, was = "encoder decoder", program.was
    program.set("begun", [], 0, both)
    for symbol in source:
        program.set(f"{symbol} 1", [program.reads(symbol)])
    for step in range(2, DELAY + 1):
        for symbol in source:
            stays = [program.reads(*every_noun)._replace(weight=-2.0, bias=1.0)] if symbol == "the" else []
            program.set(f"{symbol} {step}", [was(f"{symbol} {step - 1}"), *stays], parts=both)
        for article, of_gender in nouns.items():
            program.set(f"{article} set {step}", [was(f"the {step - 1}"), program.reads(*of_gender)], parts=both)
            known = was(f"{article} set {step - 1}", f"{article} {step - 1}")
            program.set(f"{article} {step}", [known, was("begun")], parts=both)
    pushed_by = {target_of[symbol]: [f"{symbol} {DELAY}"] for symbol in source if symbol != "the"}
    pushed_by |= {article: [f"{article} set {DELAY}", f"{article} {DELAY}"] for article in nouns}
    return _Actions(pushed_by, False), _Actions(pushed_by, True)


_NOUNS = {"das": "en", "der": "em", "die": "ef"}
_PROGRAMS: dict[Kind, Callable[[_Program, list[str]], tuple[_Actions, _Actions]]] = {
    "copy": _copied,
    "reversal": _copied,
    "bigram_flip": _flipped,
    "svo_sov": _verb_last,
    "gender": _agreeing,
}


def hand_set_model(task: Transduction, memory: str) -> Model:
    """Return a model whose weights are set by hand so that it solves the kind of a task.

    Encoder and decoder are plain recurrent cells. The encoder pushes, and the decoder says what the memory returned and
    pops it.

    Args:
        task: kind and alphabet.
        memory: one of :data:`SOLVED`.

    Raises:
        RecipeError: there is no such controller for this kind and memory.

    Example:
        >>> from treemem.tasks.transduction import Transduction
        >>> model = hand_set_model(Transduction(kind="reversal", alphabet=8), "stack")
        >>> model.predict(["3 1 4"])
        ['4 1 3']
    """
    if memory not in SOLVED.get(task.kind, ()):
        known = ", ".join(f"{kind} with {' or '.join(memories)}" for kind, memories in SOLVED.items())
        raise RecipeError(f"there is no controller set by hand for {task.kind} with {memory}; there are: {known}")
    source, target = symbols_of(task.kind, task.alphabet)
    symbols, is_deque = task.vocabulary.leaves, memory == "deque"
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    oldest = is_deque and task.kind != "reversal"
    program = _Program(numbers, target, read_from=len(target) if oldest else 0)
    of_encoder, of_decoder = _PROGRAMS[task.kind](program, source)
    for symbol in target:
        program.set(f"say {symbol}", [program.front(symbol)], parts="decoder")
    options: dict[str, Any] = {
        "hidden_size": len(program.units),
        "cell": "RNN",
        "encoder": "separate",
        "memory": memory,
        "memory_size": len(target),
        "embedding_size": len(symbols),
    }
    model = Model(task, NetworkConfig("SequenceToSequence", options), task.vocabulary)
    network: Any = model.encoder
    pop = oldest, 2 if is_deque else 1
    with torch.no_grad():
        network.embedding.weight.copy_(torch.eye(len(symbols)))
        _set_weights(network.encoder, program, "encoder", of_encoder, *pop)
        _set_weights(network.cell, program, "decoder", of_decoder, *pop)
        network.symbol.weight.zero_()
        network.symbol.bias.fill_(-2.0)
        network.symbol.bias[numbers[END]] = 0.0  # said if there is nothing to say
        for symbol in target:
            network.symbol.weight[numbers[symbol], program.units[f"say {symbol}"]] = 1.0
            network.symbol.bias[numbers[symbol]] = 0.0
    return model


def _set_weights(cell: Any, program: _Program, part: str, actions: _Actions, oldest: bool, ends: int) -> None:
    recurrent, size = cell.controller.cell, len(program.codes)
    for parameter in cell.parameters():
        parameter.zero_()
    recurrent.bias_ih.fill_(-_GAIN)  # a unit without a rule is off
    for unit, (terms, least) in program.rules[part].items():
        recurrent.bias_ih[unit] = _GAIN * (sum(term.bias for term in terms) - least + 0.5)
        for term in terms:
            weights = recurrent.weight_hh if term.source == "h" else recurrent.weight_ih
            first = len(program.number) if term.source == "r" else 0
            for column in term.columns:
                weights[unit, first + column] += _GAIN * term.weight
    value, push, pop = cell.controls.bias.split([ends * size, ends, ends])
    for bias in (value, push, pop):
        bias.fill_(-_GAIN)
    if actions.pops:
        pop[int(oldest)] = _GAIN
    for code, names in actions.pushed_by.items():
        for action in (program.codes.index(code), ends * size):  # at the top, where all is pushed
            for name in names:
                cell.controls.weight[action, program.units[name]] += _GAIN
                cell.controls.bias[action] += _GAIN
    cell.output.weight.copy_(_GAIN * torch.eye(cell.output_size))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the coarse accuracy of each controller; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--alphabet", type=int, default=32, help="number of symbols (%(default)s)")
    add("--lengths", type=int, nargs=2, default=(8, 128), metavar=("FROM", "TO"), help="of the sources (8 128)")
    add("--pairs", type=int, default=1000, help="number of pairs of each kind (%(default)s)")
    add("--seed", type=int, default=12093, help="of the pairs (%(default)s)")
    options = parser.parse_args(arguments)
    rows = [["kind", "memory", "units", "coarse accuracy in %"]]
    try:
        with torch_threads(1):
            drawn = TransductionDataOptions(
                training_size=1,
                validation_size=1,
                test_size=options.pairs,
                train_lengths=options.lengths,
                test_lengths=options.lengths,
                seed=options.seed,
            )
            for kind, memories in SOLVED.items():
                task = Transduction(kind=kind, alphabet=options.alphabet)
                data = task.make_data(drawn)
                for memory in memories:
                    model = hand_set_model(task, memory)
                    correct = evaluate(model, data, split="test").overall.metrics["coarse accuracy"]
                    units = model.network.options["hidden_size"]
                    rows.append([kind, memory, f"{units}", percent([correct])])
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    print(markdown_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
