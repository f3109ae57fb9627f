"""Serve a trained model over HTTP. Requests that arrive together run as one batch.

    pip install fastapi uvicorn
    python examples/serve.py equation_verification --port 8000
    curl -s localhost:8000/predict -H 'content-type: application/json' -d '{"record": "x + y = y + x"}'

`--measure` starts the server, sends it requests from several clients and prints latency and throughput:

    python examples/serve.py equation_verification --measure 16

docs/serving.md says more.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import Body, FastAPI, HTTPException

from treemem import TreememError, TreePredictor

EQUATIONS = [f"x + {number} = {number} + x" for number in range(10)]


class Batcher:
    """Collects records of concurrent requests, and predicts them together.

    Args:
        predictor: the model. One thread runs it, one batch after the other.
        most: most records of a batch.
    """

    def __init__(self, predictor: TreePredictor, most: int = 256) -> None:
        self.predictor, self.most = predictor, most
        self.queue: asyncio.Queue[tuple[Any, asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)
        self.batches = self.records = 0

    async def answer(self, record: Any) -> dict[str, Any]:
        """Return the answer to a record when its batch has run."""
        future = asyncio.get_running_loop().create_future()
        await self.queue.put((record, future))
        return await future

    async def run(self) -> None:
        """Run batches without end: what waits in the queue while a batch runs is the next batch."""
        loop = asyncio.get_running_loop()
        while True:
            waiting = [await self.queue.get()]
            while len(waiting) < self.most and not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            self.batches, self.records = self.batches + 1, self.records + len(waiting)
            try:
                answers = await loop.run_in_executor(self.thread, self._answers, [record for record, _ in waiting])
            except Exception as error:
                for _, future in waiting:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(waiting, answers, strict=True):
                if not future.done():  # done if the client has gone
                    future.set_result(answer)

    def _answers(self, records: list[Any]) -> list[dict[str, Any]]:
        return [*self.predictor.predict(records)]


def make_app(predictor: TreePredictor) -> FastAPI:
    """Return the service: ``POST /predict`` with ``{"record": RECORD}``."""
    batcher = Batcher(predictor)

    @asynccontextmanager
    async def batching(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(batcher.run())
        yield
        running.cancel()

    app = FastAPI(title="treemem", lifespan=batching)
    app.state.batcher = batcher

    @app.post("/predict")
    async def predict(record: str | dict[str, Any] = Body(embed=True)) -> dict[str, Any]:  # noqa: B008
        answer = await batcher.answer(record)
        if answer["error"] is not None:
            raise HTTPException(422, re.sub(r"\Aline [0-9]+[:,] ", "", answer["error"]))
        return {name: value for name, value in answer.items() if name not in ("id", "error")}

    return app


@asynccontextmanager
async def serving(app: FastAPI, port: int = 0) -> AsyncIterator[str]:
    """Serve on the loopback for the block; the address is that of a free port."""
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        await asyncio.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


async def measure(predictor: TreePredictor, clients: int, requests: int) -> None:
    """Print latency and throughput with so many clients, each of which sends one request after the other."""
    import httpx

    app = make_app(predictor)
    batcher: Batcher = app.state.batcher
    latencies: list[float] = []

    async def client(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=60) as session:
            for number in range(requests):
                begin = time.perf_counter()
                answer = await session.post("/predict", json={"record": EQUATIONS[number % len(EQUATIONS)]})
                answer.raise_for_status()
                latencies.append(time.perf_counter() - begin)

    async with serving(app) as address:
        await client(address)  # the first requests warm up
        latencies.clear()
        batcher.batches = batcher.records = 0
        begin = time.perf_counter()
        await asyncio.gather(*(client(address) for _ in range(clients)))
        seconds = time.perf_counter() - begin
    ordered = sorted(latencies)
    print(f"{clients} clients: {len(ordered)} requests in {seconds:.1f} s, {len(ordered) / seconds:.0f} requests/s")
    median, slow = statistics.median(ordered), ordered[int(0.95 * len(ordered))]
    print(f"latency: median {1000 * median:.1f} ms, p95 {1000 * slow:.1f} ms")
    print(f"{batcher.records / batcher.batches:.1f} records a batch")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="folder of a checkpoint or run, or name of a packaged model")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at (%(default)s)")
    parser.add_argument("--measure", type=int, metavar="CLIENTS", help="measure with so many clients, on equations")
    parser.add_argument("--requests", type=int, default=50, help="requests of each client (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        predictor = TreePredictor(options.checkpoint, processes=1)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.measure:
        asyncio.run(measure(predictor, options.measure, options.requests))
    else:
        uvicorn.run(make_app(predictor), host=options.host, port=options.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
