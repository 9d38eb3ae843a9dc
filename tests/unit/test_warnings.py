"""What a note of relook looks like in a user's program."""

import linecache
import runpy
import warnings
from pathlib import Path

from relook.errors import RelookWarning

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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for hidden in (DeprecationWarning, ResourceWarning):  # as Python itself does
            warnings.simplefilter("ignore", hidden)
        runpy.run_path(str(program))
    assert len(told) >= 3
    assert all(note.category is RelookWarning and note.filename == str(program) for note in told)
    lines = [linecache.getline(note.filename, note.lineno) for note in told]
    assert {line.split("(")[0] for line in lines} == {"relook.search", "relook.TTA"}
