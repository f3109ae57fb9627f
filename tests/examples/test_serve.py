"""The service answers over HTTP on the loopback."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from predict.models import small_model

from treemem import TreePredictor

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"
TEXTS = [f"x + {number} = {number} + x" for number in range(16)]


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CountedPredictor(TreePredictor):
    """A predictor that keeps the records of each batch, and whose first batch waits for the others to arrive."""

    batches: list[list[Any]]

    def predict(self, records: Any) -> Any:
        self.__dict__.setdefault("batches", []).append([*records])
        if len(self.batches) == 1:
            asyncio.run(asyncio.sleep(0.5))
        return super().predict(records)


def responses(serve: ModuleType, predictor: TreePredictor, records: list[Any]) -> list[Any]:
    """Send each record from a client of its own, all at once."""

    async def post(address: str, record: Any) -> Any:
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.post(f"{address}/predict", json={"record": record})

    async def run() -> list[Any]:
        async with serve.serving(serve.make_app(predictor)) as address:
            return list(await asyncio.gather(*(post(address, record) for record in records)))

    return asyncio.run(run())


def test_sixteen_clients_get_the_answers_to_their_own_records_from_few_batches(serve: ModuleType) -> None:
    predictor = CountedPredictor(small_model())
    answers = [response.json() for response in responses(serve, predictor, TEXTS)]
    plain = TreePredictor(small_model())
    for text, answer in zip(TEXTS, answers, strict=True):
        expected = plain.predict_one(text)
        assert answer["prediction"] == expected["prediction"]
        assert answer["probability"] == pytest.approx(expected["probability"], abs=1e-6)
    assert sorted(record for batch in predictor.batches for record in batch) == sorted(TEXTS)
    assert len(predictor.batches) < len(TEXTS)


def test_a_bad_record_gets_the_message_of_the_library_and_the_others_of_its_batch_their_answers(
    serve: ModuleType,
) -> None:
    records = [*TEXTS[:3], "x + = y", {"lhs": "x", "rhs": "x + 0"}, {"a": "x", "b": "y"}]
    got = responses(serve, CountedPredictor(small_model()), records)
    assert [response.status_code for response in got] == [200, 200, 200, 422, 200, 422]
    assert got[3].json() == {"detail": "column 5: unexpected '='; expected a number, a name, '(' or '-'"}
    assert got[5].json()["detail"].startswith("no equation among the fields 'a', 'b'; expected equation, lhs and rhs,")


def test_a_request_without_a_record_is_refused(serve: ModuleType) -> None:
    assert responses(serve, TreePredictor(small_model()), [7])[0].status_code == 422


def test_one_record_has_the_answer_of_a_list_of_one() -> None:
    predictor = TreePredictor(small_model())
    for record in (TEXTS[0], "x + = y", {"id": "a", "lhs": "x", "rhs": "y"}):
        assert predictor.predict_one(record) == next(iter(predictor.predict([record])))
