"""Many jobs side by side from one workflow, so many at a time, and what to do with those that fail.

    python app.py [PAGES]

`asyncio.gather` and `asyncio.Semaphore` are Python's own. The order in which results come in is part of the history.
"""

import asyncio
import sys

from holdfast import Backoff, Holdfast
from holdfast.errors import ActivityError

hf = Holdfast("sqlite:jobs.db")


@hf.task(max_attempts=2, backoff=Backoff(base_s=0.01))
def words_on(page: int) -> int:
    if page % 10 == 7:
        raise ValueError(f"page {page} cannot be read")
    return 100 + page


@hf.workflow
async def count(pages: int, at_a_time: int) -> str:
    places = asyncio.Semaphore(at_a_time)

    async def one(page: int) -> int:
        async with places:
            return await words_on.call(page)

    found = await asyncio.gather(*(one(page) for page in range(pages)), return_exceptions=True)
    failed = sum(isinstance(words, ActivityError) for words in found)
    return f"{sum(words for words in found if isinstance(words, int))} words, {failed} pages could not be read"


if __name__ == "__main__":
    run = count.start(int(sys.argv[1]) if len(sys.argv) > 1 else 20, 4)
    worker = hf.worker(concurrency=4)
    worker.start()
    print(run.result(timeout=60))
    worker.stop()
    worker.join()
    hf.close()
