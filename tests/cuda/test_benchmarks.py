from __future__ import annotations

from pathlib import Path

import pytest
import torch


def test_benchmarks_refuse_cuda_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.__main__ import main

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--device", "cuda"])
    with pytest.raises(SystemExit):
        main()
    assert "this machine has no CUDA device" in capsys.readouterr().err
