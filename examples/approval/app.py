"""An expense that a person approves, or nobody does: then time answers.

    python app.py

The question waits in the store, not in a process: answer it days later, from here, from the shell
(`holdfast decisions resolve ID yes`) or from a web page.
"""

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")


@hf.task
def pay(name: str, cents: int) -> str:
    # A payment service that is given the key pays once, however often this runs.
    return f"paid {cents / 100:.2f} to {name}, key {hf.idempotency_key()[:4]}"


@hf.workflow
async def expense(name: str, cents: int, patience: float) -> str:
    if cents < 5_000:
        hf.set_status("small enough")
    else:
        hf.set_status("waiting for a person")
        question = f"{name} wants {cents / 100:.2f}. Pay?"
        answer = await hf.decision(question, options=["yes", "no"], assignee="ann", timeout=patience, default="no")
        if answer == "no":
            return "refused"
    paid = await pay.call(name, cents)
    return paid.partition(",")[0]


if __name__ == "__main__":
    small = expense.start("bob", 1_250, 60, id="expense-1")
    large = expense.start("eve", 99_000, 3600, id="expense-2")
    forgotten = expense.start("dan", 70_000, 0.2, id="expense-3")
    worker = hf.worker()
    worker.start()
    print(small.id, small.result(timeout=60))
    large.wait_status(timeout=60)
    for question in hf.decisions(instance=large.id):
        print("asked:", question.record().prompt)
        question.resolve("yes", by="ann")
    print(large.id, large.result(timeout=60))
    print(forgotten.id, forgotten.result(timeout=60), "by time")
    worker.stop()
    worker.join()
    hf.close()
