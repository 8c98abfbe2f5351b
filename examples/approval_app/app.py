"""Orders over HTTP that a person approves: a request starts a workflow, another one answers its question.

pip install fastapi uvicorn
uvicorn app:app

curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"item": "piano", "euros": 900}'
curl localhost:8000/questions
curl -X POST localhost:8000/questions/ID -H 'content-type: application/json' -d '{"chosen": "yes", "by": "ann"}'
curl 'localhost:8000/orders/piano?wait=10'
"""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.errors import HoldfastError, InvalidValue, NotFound

hf = Holdfast("sqlite:jobs.db")


class Order(BaseModel):
    """What a customer sends."""

    item: str
    euros: int


class Answer(BaseModel):
    """What a person says to a question."""

    chosen: str
    by: str


@hf.task(max_attempts=5)
def deliver(item: str) -> str:
    return f"{item} is on its way"


@hf.workflow
async def sell(order: Order) -> str:
    if order.euros >= 500:
        question = f"Sell {order.item} for {order.euros} €?"
        if await hf.decision(question, options=["yes", "no"], timeout=86_400, default="no") == "no":
            return "refused"
    return await deliver.call(order.item)


app = FastAPI(lifespan=hf.lifespan.working(concurrency=2))


@app.post("/orders", status_code=202)
async def take(order: Order) -> dict[str, str]:
    # The same order sent again meets the same instance; another one under its name is refused.
    run = await sell.aio.start(order, id=f"order-{order.item}")
    return {"id": run.id}


@app.get("/orders/{item}")
async def show(item: str, wait: float = 0) -> dict[str, str]:
    run = await hf.aio.instance(f"order-{item}")
    try:
        return {"status": "COMPLETED", "says": str(await run.aio.result(timeout=min(wait, 20)))}
    except TimeoutError:
        return {"status": "RUNNING", "says": (await run.aio.explain()).sentence}


@app.get("/questions")
def questions() -> list[dict[str, str]]:
    return [{"id": one.id, "question": one.record().prompt} for one in hf.decisions()]


@app.post("/questions/{question_id}")
def answer(question_id: str, answer: Answer) -> dict[str, str]:
    hf.decision_record(question_id).resolve(answer.chosen, by=answer.by)
    return {"answered": answer.chosen}


@app.exception_handler(HoldfastError)
async def refused(_request: Request, error: HoldfastError) -> JSONResponse:
    status = 404 if isinstance(error, NotFound) else 422 if isinstance(error, InvalidValue) else 409
    return JSONResponse({"detail": error.message}, status_code=status)
