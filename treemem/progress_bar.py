"""A progress bar on standard error."""

from __future__ import annotations

import sys
from typing import Any

from treemem.data_parallel import launched_processes


def progress_bar(total: int | None, what: str, shown: bool | None, *, unit: str = "examples") -> Any:
    """Return a tqdm bar. Only the first of several processes shows one, and none if standard error is closed.

    Args:
        total: number of examples; None if it is not known.
        what: title.
        shown: None shows it on a terminal only.
        unit: what is counted.
    """
    from tqdm import tqdm

    disable = None if shown is None else not shown
    if sys.stderr is None or not launched_processes().is_first:
        disable = True
    return tqdm(total=total, desc=what, unit=f" {unit}", disable=disable, dynamic_ncols=True, leave=False)
