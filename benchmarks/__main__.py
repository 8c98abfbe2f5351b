"""`python -m benchmarks NAME`, from the top of the repository: run one benchmark."""

from __future__ import annotations

from benchmarks.commands import benchmarks

if __name__ == "__main__":
    benchmarks(prog_name="python -m benchmarks")
