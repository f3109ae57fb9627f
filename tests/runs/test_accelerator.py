from __future__ import annotations

import os

import pytest
import torch

from treemem.data_parallel import Processes
from treemem.errors import RecipeError
from treemem.runs.accelerator import fabric_of_process, find_device


def test_auto_is_cuda_where_there_is_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda is_there=is_there: is_there)
        assert find_device().type == kind
    assert find_device("cpu") == torch.device("cpu")


def test_devices_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(RecipeError, match=r'--device is "cuda:2" and the devices are cuda:0 to cuda:1'):
        find_device("cuda:2", "--device")


def test_a_device_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda:0"):
        with pytest.raises(RecipeError, match="has no CUDA device that torch can use"):
            find_device(name)
    for name in ("gpu", "cuda:x", "cuda:", "cuda:01", "cuda:-1", "cpu:", "cpu:01", "cpu:1", "cpu\n", ""):
        with pytest.raises(RecipeError, match="it must be auto, cpu, cuda"):
            find_device(name)


def test_fabric_run_starts_processes_and_says_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    told = {"LT_CLI_USED": "1", "LT_DEVICES": "2", "LT_NUM_NODES": "1", "LT_ACCELERATOR": "cpu"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert fabric_of_process(Processes(), "auto", "32-true").device == torch.device("cpu")
    assert {name: os.environ.get(name) for name in told} == told
    for name in ("PRECISION", "STRATEGY"):
        with monkeypatch.context() as patch:
            patch.setenv(f"LT_{name}", "other")
            with pytest.raises(RecipeError, match=f"fabric run was given --{name.lower()}; leave it away"):
                fabric_of_process(Processes(), "cpu", "32-true")
