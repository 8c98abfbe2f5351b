"""Commands as jobs: a nightly archive, run with its words as they are, its output kept, its exit code the outcome.

python app.py
"""

import sys
from pathlib import Path

from holdfast import Holdfast, Shell

hf = Holdfast("sqlite:jobs.db")


@hf.task(isolation="shell", timeout=600)
def archive(folder: str, into: str) -> list[str]:
    # Words reach the program as they are; no shell reads them, so no file name can become a command.
    return ["tar", "--create", "--file", into, "--verbose", "--", folder]


@hf.task(isolation="shell", timeout=60)
def count_lines(folder: str) -> Shell:
    # Where a shell must read the text, values go in as variables, never into the text itself.
    text = 'find "$FOLDER" -type f -exec cat {} + | wc -l'
    return Shell(text, shell=True, env={"FOLDER": folder})  # noqa: S604 - nothing of the job's is in the text


@hf.task(isolation="shell", max_attempts=1)
def check(code: int) -> list[str]:
    return [sys.executable, "-c", f"import sys; print('looking'); sys.exit({code})"]


if __name__ == "__main__":
    notes = Path("notes; rm -rf $HOME")  # an unfriendly name does no harm
    notes.mkdir(exist_ok=True)
    (notes / "one.txt").write_text("first\nsecond\n")
    archived = archive.enqueue(str(notes), into="notes.tar")
    counted = count_lines.enqueue(str(notes))
    failed = check.enqueue(3)
    hf.work(until_idle=True)
    print("archived:", archived.result().stdout.split("\n")[1])
    print("lines:", counted.result().stdout.strip())
    print(failed.status, "with exit code", failed.runs()[0].exit_code)
    print("it said:", [line.text for line in failed.log()])
    hf.close()
