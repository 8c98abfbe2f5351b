"""An API that answers at once and does the work afterwards.

uvicorn app:app          serves, and works in the same process
fastapi dev app.py       the same, reloading
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.errors import JobNotFound

hf = Holdfast("sqlite:jobs.db")


class Order(BaseModel):
    """What a customer sends; a task takes pydantic models as they are."""

    customer: str
    prices: list[float]


class Invoice(BaseModel):
    """What the customer gets in the end."""

    customer: str
    total: float


class State(BaseModel):
    """Where an order stands."""

    id: str
    status: str
    invoice: Invoice | None = None


@hf.task(queue="invoices", max_attempts=3, timeout=30)
async def invoice(order: Order) -> Invoice:
    await asyncio.sleep(0.01)  # the slow part: a PDF, a payment provider, …
    return Invoice(customer=order.customer, total=round(sum(order.prices), 2))


# `hf.lifespan` alone opens and closes the store; `.working(…)` runs a worker in the server's process, too.
app = FastAPI(lifespan=hf.lifespan.working(concurrency=4))


@app.post("/orders", status_code=202)
async def take(order: Order) -> State:
    job = await invoice.aio.enqueue(order)  # durable from here on, whatever happens to this server
    return State(id=job.id, status="QUEUED")


@app.get("/orders/{job_id}")
async def show(job_id: str, wait: float = 0) -> State:
    job = await hf.aio.job(job_id)
    try:
        done = await job.aio.result(timeout=min(wait, 20))
    except TimeoutError:
        return State(id=job_id, status=await job.aio.status())
    return State(id=job_id, status="COMPLETED", invoice=done)


@app.exception_handler(JobNotFound)
async def missing(_request: Request, error: JobNotFound) -> JSONResponse:
    return JSONResponse({"detail": error.message}, status_code=404)
