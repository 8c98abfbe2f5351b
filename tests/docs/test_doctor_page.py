"""The page on `holdfast doctor` and the code name the same findings."""

import re
from pathlib import Path

from holdfast.engine import health, missing_workers
from holdfast.stores import check_and_repair, diagnostics

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "doctor.md"


def test_every_code_stands_on_the_page_and_no_other_does():
    sources = [
        Path(module.__file__).read_text(encoding="utf-8")
        for module in (health, missing_workers, check_and_repair, diagnostics)
    ]
    used = {code for source in sources for code in re.findall(r'code="([a-z_]+)"', source)}
    named = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert named == used
