"""A tree network over trees that are too large to keep every row of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.checkpoint import checkpoint

from treemem.device_copy import to_device
from treemem.engines.cell import State
from treemem.schedule.parts import cut_schedule
from treemem.schedule.schedule import Schedule

Run = Callable[[Schedule, State], State]


def root_states(
    run: Run,
    schedule: Schedule,
    rows_at_once: int,
    learned: Callable[[], Iterator[torch.Tensor]],
) -> State:
    """Return the states of the roots, ``[trees, ...]``; of other rows only what later parts read is kept.

    Args:
        run: the states of all rows of a part's schedule, from those of its given rows.
        schedule: all rows.
        rows_at_once: inner rows of a part.
        learned: gives the weights that ``run`` reads. The backward pass runs each part again and raises RuntimeError if
            they have changed.
    """
    before = _versions(learned())
    cut = cut_schedule(schedule, rows_at_once)
    device = schedule.device
    names: list[str] = []
    handed_on: list[Sequence[torch.Tensor]] = []
    for part in cut.parts:
        order, rows = part.schedule.to(device), to_device(part.handed_on, device)

        def run_part(
            *given: torch.Tensor, order: Schedule = order, rows: torch.Tensor = rows
        ) -> Sequence[torch.Tensor]:
            if _versions(learned()) != before:
                raise RuntimeError("the weights have changed since the trees were run; change them after backward()")
            states = run(order, dict(zip(names, given, strict=True)) if given else {})
            if not names:
                names.extend(states)
            return [states[name].index_select(0, rows) for name in names]

        sources = [(handed_on[source], to_device(places, device)) for source, places in part.given]
        given = [
            torch.cat([states[place].index_select(0, places) for states, places in sources])
            for place in range(len(names) if sources else 0)
        ]
        only = len(cut.parts) == 1
        handed_on.append(run_part(*given) if only else checkpoint(run_part, *given, use_reentrant=False))
    place_of_root = to_device(cut.place_of_root, device)
    return {
        name: torch.cat(of_parts).index_select(0, place_of_root)
        for name, of_parts in zip(names, zip(*handed_on, strict=True), strict=True)
    }


def _versions(weights: Iterator[torch.Tensor]) -> list[tuple[int, int]]:
    return [(id(weight), weight._version) for weight in weights if weight.requires_grad]
