"""What a checker must refuse of an application's workflows: each line that is marked, and no other. Never run."""

from holdfast import Holdfast

hf = Holdfast("memory:")


@hf.task
def send(to: str) -> bytes:
    return to.encode()


def measure(text: str) -> int:
    return len(text)


@hf.workflow
async def onboard(user: int) -> str:
    await send.call(3)  # wrong: to is text
    await send.call("a", "b")  # wrong: one argument too many
    await send.options(colour="red").call("a")  # wrong: there is no such option
    number: int = await send.call("a")  # wrong: it gives bytes
    await hf.step(measure)  # wrong: what is measured is missing
    await hf.step(measure, 3)  # wrong: text is text
    await hf.step.options(colour="red")(measure, "a")  # wrong: there is no such option
    amount: int = await hf.signal("paid", type=str)  # wrong: it gives text
    print(amount)
    return str(number)


def outside() -> None:
    onboard.start("a")  # wrong: user is a number
    onboard.start()  # wrong: user is missing
    onboard.options(id="x").start("a")  # wrong: user is a number
    onboard.options(on_parent_end="kill")  # wrong: cancel or leave
    number: int = onboard.start(1).result()  # wrong: it gives text
    print(number)
    hf.workflow(cancel_grace="long")  # wrong: seconds
    hf.workflow(on_nondeterminism="ignore")  # wrong: block or fail
    hf.workflow(on_error="ignore")  # wrong: block or fail
    onboard.start(1).resolve("yes")  # wrong: a run is no question
    hf.decisions()[0].resolve(True)  # wrong: an answer is text
    onboard.call("a")  # wrong: user is a number
