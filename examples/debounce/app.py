"""Many changes, one rebuild: each change replaces the job that waits, and moves it a second into the future.

python app.py
"""

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")
QUIET_S = 1.0


@hf.task(queue="search")
def rebuild(document: int, version: int) -> str:
    return f"document {document} as of version {version}"


def changed(document: int, version: int) -> None:
    """Note a change; the index follows once the document has been quiet for a while."""
    rebuild.options(
        key=f"rebuild-{document}",
        key_hold="queued",  # one that runs already has read an older version, and is followed by another
        on_conflict="replace",
        delay=QUIET_S,
    ).enqueue(document, version)


if __name__ == "__main__":
    for number in range(1, 21):
        changed(1, number)
    changed(2, 1)
    worker = hf.worker()
    worker.start()
    for job in sorted(hf.jobs(), key=lambda job: job.result(timeout=60)):
        print(job.result())
    worker.drain()
    worker.join()
    hf.close()
