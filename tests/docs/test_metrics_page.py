"""The page on metrics and the code name the same figures."""

import re
from pathlib import Path

from holdfast.web import metrics

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"


def test_every_figure_stands_on_the_page_and_no_other_does():
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    used = set(re.findall(r'"(holdfast_[a-z_]+)"', source))
    of_the_journal = re.findall(r'(?:gauge|counter|_state)\(\s*"([a-z_]+)"', source)
    used |= {f"holdfast_journal_{name}" for name in of_the_journal}
    named = set(re.findall(r"^\| `(holdfast_[a-z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert named == used
