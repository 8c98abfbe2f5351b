"""What a checker must refuse of workflows: each line that is marked, and no other. Never run."""

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.workflow import Register, activity

definitions = Definitions(SignatureCodec)
register = Register(definitions, SignatureCodec)


def send(to: str) -> bytes:
    return to.encode()


mail = activity(send, SignatureCodec(send))


@register
async def onboard(user: int) -> str:
    await mail.call(3)  # wrong: to is text
    await mail.call("a", "b")  # wrong: one argument too many
    await hf.step(send, 3)  # wrong: to is text
    await hf.step(send)  # wrong: to is missing
    hf.patched(1)  # wrong: a patch is named by text
    await hf.decision("Go?", [1, 2])  # wrong: labels are text
    number: int = await mail.call("a")  # wrong: it gives bytes
    hf.send_signal("x")  # wrong: the name is missing
    return str(number)


async def others() -> None:
    await onboard.call("a")  # wrong: user is a number
    onboard.options(on_parent_end="kill")  # wrong: cancel or leave
    onboard.start_detached()  # wrong: user is missing
    register(cancel_grace="long")  # wrong: seconds
    register(on_nondeterminism="ignore")  # wrong: block or fail
