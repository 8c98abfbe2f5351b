"""An application for tests of `holdfast workflows`; a test may change `MODE` before it is replayed."""

import asyncio

from holdfast import Holdfast

MODE = {"sleep": 5, "name": "ann", "patch": False}


def build(url):
    hf = Holdfast(url)

    @hf.task(name="greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    @hf.workflow
    async def welcome(times: int) -> str:
        if MODE["patch"]:
            hf.patched("new")
        hf.set_status("begun")
        said = await greet.call(MODE["name"] * times)
        await asyncio.sleep(MODE["sleep"])
        return said

    @hf.workflow
    async def ask() -> str:
        answer = await hf.decision("Ship it?", options=["yes", "no"])
        await hf.signal("go")
        return answer

    return hf


hf = build("memory:")
