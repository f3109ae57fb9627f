"""Runs treemem commands with these tasks and networks registered: ``driver.py ARGUMENTS [++ ARGUMENTS]``.

``++`` stands between commands. One that begins with ``--die STEP`` kills itself, as by ``kill -9``, before that
training step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from treemem.cli import main
from treemem.runs.training_loop import Trainer
from treemem.task import TASKS

TASKS.register("odd_x", "node_labels:OddX")
TASKS.register("first_leaf", "reinforce:FirstLeaf")


def die_before(step: int) -> None:
    """Kill this process in place of that training step."""
    done = Trainer.step
    left = step

    def counting(self: Trainer, batch: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done(self, batch)  # type: ignore[arg-type]

    Trainer.step = counting  # type: ignore[assignment,method-assign]


def run(words: list[str]) -> int:
    """Run a command. After ``--die STEP`` it runs in a process of its own, which must not survive."""
    if words[0] != "--die":
        return main(words)
    child = os.fork()
    if not child:
        die_before(int(words[1]))
        os._exit(main(words[2:]))
    return 0 if os.waitpid(child, 0)[1] == signal.SIGKILL else 1


if __name__ == "__main__":
    for command in " ".join(sys.argv[1:]).split(" ++ "):
        code = run(command.split())
        if code:
            sys.exit(f"{command} ended with {code}")
