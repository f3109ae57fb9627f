from __future__ import annotations

from pathlib import Path

import pytest

from treemem.tasks.equation_verification.pattern_reader import accuracy_and_patterns, local_patterns, main
from treemem.trees.equation_parser import parse_equation


def test_patterns_are_nodes_with_children_and_paths_of_three() -> None:
    found = local_patterns(parse_equation("sin(x) = sin(y + 1)"))
    assert found == {
        "Equality(sin, sin)": 1,
        "sin(variable)": 1,
        "sin(Add)": 1,
        "Add(variable, Integer:1)": 1,
        "Equality > sin > variable": 1,
        "Equality > sin > Add": 1,
        "sin > Add > variable": 1,
        "sin > Add > Integer:1": 1,
    }


def test_a_classifier_tells_lists_apart_by_their_patterns_and_only_then() -> None:
    sines = [parse_equation(f"sin(x) + {number} = y") for number in range(10)] * 3
    cosines = [parse_equation(f"cos(x) + {number} = y") for number in range(10)] * 3
    accuracy, of_first, of_second = accuracy_and_patterns(sines, cosines, shown=3)
    assert accuracy == 1
    assert all("sin" in each for each in of_first)
    assert all("cos" in each for each in of_second)
    assert accuracy_and_patterns(sines, sines)[0] <= 0.5


def test_files_are_compared_at_the_same_depths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("".join(f"(x + {number})^(1/2) = (x + {number})^(1/2)\t1\n" for number in range(9)) + "x = 2\t0\n")
    second.write_text("".join(f"x + (y + z) = {number}*z\t1\n" for number in range(7)))
    assert main([str(first), str(second), "--depths", "2", "4"]) == 0
    shown = capsys.readouterr().out
    assert "7 true equations of each file, by depth: {2: 0, 3: 7, 4: 0}" in shown
    assert "square roots of sums, per equation: 2.000 and 0.000" in shown
    assert "same function at the root: 1.000 and 0.000" in shown
    assert "three or more variables: 0.000 and 1.000" in shown
    assert main([str(first), str(second), "--depths", "8", "9"]) == 2
    assert "share 0 true equations" in capsys.readouterr().err
