"""Install a wheel without extras into an environment of its own, and use it as a stranger would.

python .github/smoke.py dist/relook-*.whl [ARGUMENTS OF pip]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SEARCH = """
import relook
from relook.data import load_data
from relook.models.small import new_small

digits = load_data("digits")
model, images = new_small(1), digits.plain[:400]
found = relook.search(model, images, digits.labels[:400], pool_size=6, length=2, out="run")
print(found.comparison.verdict.sentence)
assert found.tta().predict_proba(images[:3]).shape == (3, 10)
assert relook.Policy.load("run/policy.json") == found.policy
"""


def main(wheel: str, *pip: str) -> None:
    """Run each step in a new directory; the first that fails ends it."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "environment")
        venv.create(home, with_pip=True)
        programs = home / ("Scripts" if os.name == "nt" else "bin")
        python = str(programs / "python")
        clean = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        for command in (
            [python, "-m", "pip", "install", "--quiet", str(Path(wheel).resolve()), *pip],
            [python, "-c", "import relook; print(relook.__version__, relook.__file__)"],
            [str(programs / "relook"), "--help"],
            [python, "-W", "ignore", "-c", SEARCH],
            [str(programs / "relook"), "show", "run"],
            [str(programs / "relook"), "doctor"],
        ):
            print("$", *(part.strip().partition("\n")[0] for part in command), flush=True)
            subprocess.run(command, check=True, cwd=place, env=clean)


if __name__ == "__main__":
    main(*sys.argv[1:])
