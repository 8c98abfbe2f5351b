"""The smallest program: a function, a job, its result.

python app.py
"""

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")  # the URL is the only configuration


@hf.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.enqueue("world")  # durable when it returns
    hf.work(until_idle=True)  # or in another terminal: holdfast worker app:hf
    print(job.status, job.result())
