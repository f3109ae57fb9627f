from __future__ import annotations

from treemem.runs.same_run import differences


def test_options_that_are_newer_than_a_description_were_at_their_defaults() -> None:
    assert differences({}, {"averaging": None, "beta1": 0.9}) == {}
    assert differences({}, {"averaging": 0.5}) == {"averaging": "averaging was None and is 0.5 now"}


def test_of_nested_options_those_that_differ_are_named() -> None:
    before = {"network": {"network": "LSTM", "options": {"hidden_size": 4}}, "seed": 1, "gone": 3}
    now = {"network": {"network": "LSTM", "options": {"hidden_size": 8}}, "seed": 2}
    said = "network was {'options': {'hidden_size': 4}} and is {'options': {'hidden_size': 8}} now"
    assert differences(before, now, free={"seed"}) == {"network": said, "gone": "gone was 3 and is None now"}


def test_values_are_compared_as_files_hold_them() -> None:
    assert differences({"curriculum": [[2, 1]]}, {"curriculum": ((2, 1),)}) == {}
    assert list(differences({"data": "a hash"}, {"data": "another"})) == ["data"]
