"""An application that cannot be loaded: told with its file and line, exit 2, and no store is made."""

from __future__ import annotations

import subprocess
import sys

import pytest

BROKEN = {
    "typo.py": "from holdfast import Holdfast\n\nhf = Holdfast('sqlite:jobs.db'\n",
    "needs.py": "import os\n\nimport no_such_thing_here\n",
    "deep.py": "import needs\n",
    "attribute.py": "import os\n\nos.no_such_thing\n",
    "url.py": "from holdfast import Holdfast\n\nhf = Holdfast('jobs.db')\n",
    "script.py": "import sys\n\nsys.exit('all done')\n",
    "other.py": "hf = object()\n",
    "fine.py": "from holdfast import Holdfast\nhf = Holdfast('sqlite:jobs.db')\n",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fine", "'fine' does not name an application. Use MODULE:NAME, for example app:hf."),
        ("nowhere:hf", "there is no module nowhere in"),
        ("fine:nothing", "fine.py has no nothing. Name the variable that holds its Holdfast object."),
        ("other:hf", "hf in other.py is of type object, not a Holdfast object."),
        ("typo:hf", "typo cannot be imported: typo.py, line 3: SyntaxError: "),
        ("needs:hf", "needs cannot be imported: needs.py, line 3: No module named 'no_such_thing_here'."),
        ("deep:hf", "deep cannot be imported: needs.py, line 3: No module named 'no_such_thing_here'."),
        ("attribute:hf", "attribute.py, line 3: AttributeError: module 'os' has no attribute 'no_such_thing'."),
        ("url:hf", "url cannot be imported: url.py, line 3: InvalidValue: 'jobs.db' is not a store URL."),
        ("script:hf", "script.py, line 3: it ends the process while it is imported, with 'all done'. Put"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_line(tmp_path, name, said):
    for file, text in BROKEN.items():
        (tmp_path / file).write_text(text)
    command = [sys.executable, "-B", "-c", "from holdfast.cli import main; main()", "worker", name]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(BROKEN)
