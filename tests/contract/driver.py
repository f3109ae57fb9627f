"""Runs treemem commands with these tasks and networks registered: ``driver.py [--die STEP] ARGUMENTS [++ ARGUMENTS]``.

``++`` stands between commands. With ``--die`` the first runs in a process of its own, which kills itself, as by
``kill -9``, before that training step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from treemem.cli import main
from treemem.runs.trainer import Trainer
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


if __name__ == "__main__":
    words = sys.argv[1:]
    commands = " ".join(words[2:] if words[0] == "--die" else words).split(" ++ ")
    if words[0] == "--die":
        killed = commands.pop(0)
        child = os.fork()
        if not child:
            die_before(int(words[1]))
            os._exit(main(killed.split()))
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            sys.exit(f"{killed} was not killed")
    for command in commands:
        code = main(command.split())
        if code:
            sys.exit(code)
