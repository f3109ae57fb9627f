from __future__ import annotations

from pathlib import Path

import pytest

from treemem.cli import main
from treemem.runs import load_recipe


def test_what_is_printed_is_the_recipe_with_its_overrides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "toy.yaml", "training.epochs=7", "--set", "seeds=[3, 4]", "--networks", "sum"]) == 0
    (folder / "printed.yaml").write_text(capsys.readouterr().out)
    recipe = load_recipe("toy.yaml", ["training.epochs=7", "seeds=[3, 4]"]).with_networks(["sum"])
    assert load_recipe("printed.yaml") == recipe
