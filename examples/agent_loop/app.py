"""An assistant that talks for months: it waits for messages, lets a model choose tools, and begins anew now and then.

    python app.py

The model here is a toy; a real one is called in the same place. Its answers are recorded, so a crash never asks it
twice for what it has said, and never lets it decide otherwise the second time.
"""

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")

#: Messages after which the next execution takes over, with a short memory instead of the long history.
ENOUGH = 3


def think(memory: list[str], message: str) -> str:
    """Choose a tool, or answer. A real one asks a model over the network, so this is a step."""
    words = message.split()
    return f"add {words[1]} {words[3]}" if words[0] == "what's" else f"say noted, that makes {len(memory) + 1}"


@hf.task(max_attempts=3)
def add(left: int, right: int) -> int:
    """Work for any worker, with retries of its own: a tool."""
    return left + right


@hf.workflow
async def assistant(memory: list[str]) -> list[str]:
    heard = 0
    while True:
        if heard == ENOUGH:  # a real one asks hf.should_continue_as_new()
            hf.continue_as_new(memory[-10:])
        message = await hf.signal("message", type=str)
        if message == "bye":
            return memory
        tool, _, rest = (await hf.step(think, memory, message)).partition(" ")
        reply = str(await add.call(*map(int, rest.split()))) if tool == "add" else rest
        memory = [*memory, message]
        hf.kv.set(f"reply-{len(memory)}", reply)  # anybody may read it, also while no worker is there
        heard += 1


if __name__ == "__main__":
    chat = assistant.start([], id="chat-1")
    for message in ("hello", "what's 20 and 22", "I like tea", "and cake", "what's 1 and 1", "bye"):
        chat.signal("message", message)  # kept in order, whether or not anybody listens yet
    hf.work(until_idle=True)
    print("remembers", chat.result())
    for key, reply in sorted(chat.kv.all().items()):
        print(key, reply)
    print("executions:", len(chat.executions()))
    hf.close()
