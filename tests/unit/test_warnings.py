"""What a note of relook looks like in a user's program."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """\
import relook
from relook.data import load_data
from relook.models.small import new_small

digits = load_data("digits").subset(range(30))
relook.search(new_small(), digits, pool_size=3, length=1, progress=False)
relook.TTA(new_small(), "preset:flip")(digits.plain)
"""


def test_a_note_points_at_the_users_own_line(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(PROGRAM)
    told = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    heads, lines = told[::2], told[1::2]
    assert len(heads) == len(lines) >= 3
    assert all(head.startswith(f"{program}:") and ": RelookWarning: " in head for head in heads)
    assert {line.strip().split("(")[0] for line in lines} == {"relook.search", "relook.TTA"}
