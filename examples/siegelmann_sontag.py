"""A recurrent network with rational weights that computes what a Turing machine computes (Siegelmann and Sontag 1995).

The tape is two stacks: left of the head, and from the head on. A stack of bits b1 b2 ... from its top is the number
(2 b1 + 1) / 4 + (2 b2 + 1) / 16 + ..., and an empty stack is 0. With s(x) = min(1, max(0, x)), the top of x is
s(4 x - 2), the rest is s(4 x - 2 top - 1), and a push is x / 4 + (2 b + 1) / 4. The network is h <- s(A h + c), and
three of its steps are one step of the machine.
"""

import argparse
import re
from fractions import Fraction

import numpy as np

BUSY_BEAVER = "A0:1RB A1:1LB B0:1LA B1:0LC C0:1RH C1:1LD D0:1RD D1:0RA"  # state, read: write, move, next state; H halts


def rules_of(machine: str) -> dict[str, tuple[int, str, str]]:
    """Return state and read symbol, such as ``"A0"``, to the written symbol, the move and the next state."""
    return {rule[:2]: (int(rule[3]), rule[4], rule[5]) for rule in machine.split()}


class Network:
    """A network that simulates a machine with the tape symbols 0 (blank) and 1.

    Three groups of units take turns; while one holds the state, the others are 0.

    1. Where the machine is: its state, and each stack in two units, one for each move that may have come before.
    2. The tops of the stacks, and copies of the state and the stacks.
    3. The rule that applies, the rest of each stack, and copies of what a move needs.
    """

    def __init__(self, machine: str) -> None:
        named = rules_of(machine)
        states = sorted({rule[0] for rule in named})
        weights: dict[str, dict[str, float]] = {}  # of each unit: from a unit, or from 1, which is the bias

        for stack in ("left", "right"):
            both = (f"{stack} after L", f"{stack} after R")
            weights[f"{stack} top"] = {**dict.fromkeys(both, 4), "1": -2}
            weights[f"{stack} copy"] = dict.fromkeys(both, 1)
            weights[f"{stack} rest"] = {f"{stack} copy": 4, f"{stack} top": -2, "1": -1}
        weights |= {f"{state} copy": {f"state {state}": 1} for state in states}
        weights |= {"left top again": {"left top": 1}, "left again": {"left copy": 1}}
        for rule in named:
            bit = {"right top": 1, "1": -1} if rule[1] == "1" else {"right top": -1}
            weights[f"rule {rule}"] = {f"{rule[0]} copy": 1, **bit}
        for state in (*states, "H"):
            weights[f"state {state}"] = {f"rule {rule}": 1 for rule, (_, _, after) in named.items() if after == state}

        def rules_with(move: str, push: float) -> dict[str, float]:
            return {f"rule {rule}": (move == own) + push * write for rule, (write, own, _) in named.items()}

        # A unit below is its stack if the machine makes its move, and else 0: the rule adds the 1 that the bias takes.
        weights["left after L"] = {"left rest": 1, **rules_with("L", 0), "1": -1}
        weights["right after R"] = {"right rest": 1, **rules_with("R", 0), "1": -1}
        weights["left after R"] = {"left again": 1 / 4, **rules_with("R", 2 / 4), "1": 1 / 4 - 1}
        weights["right after L"] = {"right rest": 1 / 16, **rules_with("L", 2 / 16), "left top again": 2 / 4}
        weights["right after L"]["1"] = 1 / 16 + 1 / 4 - 1

        self.units = {unit: place for place, unit in enumerate(weights)}
        self.matrix = np.full((len(weights), len(weights)), Fraction(0))
        self.bias = np.full(len(weights), Fraction(0))
        for unit, row in weights.items():
            for source, weight in row.items():
                if source == "1":
                    self.bias[self.units[unit]] = Fraction(weight)
                else:
                    self.matrix[self.units[unit], self.units[source]] = Fraction(weight)

    def initial(self, tape: str) -> np.ndarray:
        """Return the state before the first step: A, with the head on the first symbol of the tape."""
        hidden = np.full(len(self.units), Fraction(0))
        hidden[self.units["state A"]] = Fraction(1)
        stack = sum(Fraction(2 * int(bit) + 1, 4**place) for place, bit in enumerate(tape, start=1))
        hidden[self.units["right after R"]] = stack
        return hidden

    def step(self, hidden: np.ndarray) -> np.ndarray:
        """Return the state after a step of the machine, which is three steps of the network."""
        for _ in range(3):
            hidden = np.minimum(1, np.maximum(0, self.matrix @ hidden + self.bias))
        return hidden

    def halted(self, hidden: np.ndarray) -> bool:
        return bool(hidden[self.units["state H"]] == 1)

    def tape(self, hidden: np.ndarray) -> tuple[str, str]:
        """Return the tape left of the head, and from the head on."""
        left, right = (
            "".join(bits(hidden[self.units[f"{stack} after L"]] + hidden[self.units[f"{stack} after R"]]))
            for stack in ("left", "right")
        )
        return left[::-1], right


def bits(stack: Fraction) -> list[str]:
    """Return the bits of a stack from its top."""
    found = []
    while stack:
        top = int(4 * stack > 2)
        found.append(str(top))
        stack = 4 * stack - 2 * top - 1
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default=BUSY_BEAVER, help="rules of the machine (%(default)s)")
    parser.add_argument("--tape", default="", help="symbols 0 and 1 from the head on (an empty tape)")
    parser.add_argument("--steps", type=int, default=1000, help="most steps of the machine (%(default)s)")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"([A-Z][01]:[01][LR][A-Z]\s*)+", options.machine):
        parser.error(f"--machine is {options.machine!r}; give rules such as A0:1RB, separated by spaces")
    if not re.fullmatch("[01]*", options.tape):
        parser.error(f"--tape is {options.tape!r}; give symbols 0 and 1")
    network = Network(options.machine)
    hidden, steps = network.initial(options.tape), 0
    while steps < options.steps and not network.halted(hidden):
        hidden, steps = network.step(hidden), steps + 1
    left, right = network.tape(hidden)
    print(f"{len(network.units)} units; {'halted' if network.halted(hidden) else 'stopped'} after {steps} steps")
    print(f"tape {left}[{right[:1] or '0'}]{right[1:]}, {(left + right).count('1')} ones")


if __name__ == "__main__":
    main()
