"""What a checker must refuse, line by line: each line marked `wrong`, and no other. Never run."""

from holdfast import Holdfast, Job
from holdfast.app.tasks.options import Options

hf = Holdfast("memory:")


@hf.task
def bare(to: str, copies: int = 1) -> int:
    return copies


@hf.task(queue="mail")
async def fetch(url: str) -> bytes:
    return url.encode()


def arguments_are_checked() -> None:
    bare.enqueue()  # wrong: to is missing
    bare.enqueue(1)  # wrong: to is text
    bare.enqueue("a", copies="2")  # wrong: copies is a number
    bare.enqueue("a", 1, 2)  # wrong: one too many
    bare.enqueue("a", priority=9)  # wrong: an option is no argument
    fetch.enqueue(b"u")  # wrong: url is text
    fetch.enqueue(uri="u")  # wrong: it is called url
    bare.job(copies=2)  # wrong: to is missing
    bare()  # wrong: a direct call is checked, too
    bare.enqueue_many(["a"])  # wrong: an item is a tuple, a mapping or a job
    bare.enqueue_many([3])  # wrong: the same


def results_are_known() -> None:
    text: str = bare.enqueue("a").result()  # wrong: it is a number
    data: str = fetch.enqueue("u").result()  # wrong: it is bytes
    job: Job[str] = bare.enqueue("a")  # wrong: of a number
    number: int = fetch("u")  # wrong: it must be awaited
    print(text, data, job, number)


def options_are_checked() -> None:
    bare.options(piority=3)  # wrong: misspelt
    bare.options(priority="high")  # wrong: a number
    bare.options(retry="never")  # wrong: requeue or chain
    bare.options(key_scope="world")  # wrong: task, queue or namespace
    bare.options(delay="soon")  # wrong: seconds
    bare.options(not_before="2026-01-01")  # wrong: a datetime
    bare.options(connection="jobs.db")  # wrong: an open connection
    bare.options(to="a")  # wrong: an argument is no option
    hf.task(id="mine")  # wrong: an id is of one call
    hf.task(key="k")  # wrong: so is a key
    hf.task(isolation="container")  # wrong: only a process
    Options(colour="red")  # wrong: there is no such option


async def awaited_calls_are_checked(job: Job[int]) -> None:
    await bare.aio.enqueue()  # wrong: to is missing
    await fetch.aio.enqueue(3)  # wrong: url is text
    text: str = await job.aio.result()  # wrong: a number
    print(text)
    await job.aio.update(colour="red")  # wrong: there is no such field
    await hf.aio.job(3)  # wrong: an id is text


def handles_are_checked(job: Job[int]) -> None:
    job.update(key="k")  # wrong: a key never changes
    job.move(to="middle")  # wrong: first or last
    job.result("soon")  # wrong: seconds
    job.cancel(force="yes")  # wrong: a truth
    hf.jobs(state="QUEUED")  # wrong: it is called status
    hf.queue(3)  # wrong: a name


def groups_are_checked() -> None:
    hf.group(["id"])  # wrong: a job, not its id
    hf.group([], mode="random")  # wrong: sequential or concurrent
    hf.chain(color="red")  # wrong: no such option
    hf.fan_out(len, [])  # wrong: a task
    hf.find_group(3)  # wrong: an id


@hf.task("mail")  # wrong: options are given by name
def misused(to: str) -> None:
    return None


@hf.task(isolation="shell")  # wrong: a number is no command
def counted() -> int:
    return 1


@hf.task(isolation="shell")
def archive(folder: str) -> list[str]:
    return ["tar", folder]


archive.enqueue(3)  # wrong: folder is text
