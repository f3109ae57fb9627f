"""Small inputs as people have them in public files, each with its right value or a clear refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treemem.errors import TreememError


# One case reads a file that it does not close.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_files_as_people_have_them_are_read_right_or_refused(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shared_data.parent / "real_files"
    monkeypatch.chdir(folder)
    wrong = {}
    for case in json.loads((folder / "manifest.json").read_text()):
        names: dict[str, Any] = {}
        try:
            exec(case["code"], names)
        except TreememError as error:
            if not case["clear_refusal_also_right"] and case["right"] != "GraphError":
                wrong[case["id"]] = str(error)
        else:
            out = json.loads(json.dumps(names["out"], default=str))
            if out != case["right"]:
                wrong[case["id"]] = out
    assert wrong == {}
