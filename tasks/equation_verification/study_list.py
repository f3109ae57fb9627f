"""All studies by name."""

from __future__ import annotations

from collections.abc import Callable

from treemem.runs import StudyRun
from treemem.tasks.equation_verification.beyond import best_runs, search_runs, together_runs
from treemem.tasks.equation_verification.studies import (
    ablation_runs,
    rate_runs,
    sample_efficiency_runs,
    table_2_runs,
)

STUDIES: dict[str, Callable[[], list[StudyRun]]] = {
    "rates": rate_runs,
    "table-2": table_2_runs,
    "sample-efficiency": sample_efficiency_runs,
    "ablation": ablation_runs,
    "search": search_runs,
    "together": together_runs,
    "best": best_runs,
}

CHOOSING = ("rates", "search", "together")
"""Studies by which something is chosen: neither test equations nor published ones are scored in them."""

WITH_DEEP_VALIDATION = ("search", "together", "best")
"""Studies whose runs are scored on the deep validation equations too."""

WITH_FURTHER_FILES = ("table-2", "best")
"""Studies whose runs are scored on equations beyond depth 13 and on published ones too."""
