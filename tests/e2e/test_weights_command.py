import json
from pathlib import Path

import pytest
from tests.e2e.conftest import Relook, Words

from relook.deploy.weights import ENTRIES
from relook.foundation.wording import views_text
from relook.policy import Policy


def test_weights_are_learned_shown_and_written(
    relook: Relook, sources: Words, model: str, data: str, policy: Path, tmp_path: Path
) -> None:
    common = ("calibrate", *sources, "-p", policy, "--force")
    assert "held-out images" in relook.ok(*common, "--weights", "learn").out
    told = json.loads(relook(*common, "--weights", "learn", "--json").out)
    entries = len(told["policy"]["subpolicies"])
    assert entries == (ENTRIES if told["weights"]["used"] else 4)
    assert told["weights"]["used"] == told["weights"]["better"]
    assert sum(told["weights"]["weights"]) == pytest.approx(1)
    out = tmp_path / "always.json"
    always = relook(*common, "--weights", "always", "--out", out)
    assert "as repeats of views" in always.err
    weighted = Policy.load(out)
    assert len(weighted) == len(weighted.temperatures or ()) == ENTRIES
    predicted = relook("predict", "-m", model, "-p", out, "-d", data, "-o", tmp_path / "p.csv")
    assert f"{views_text(len(weighted.counts()))} each" in predicted.err


def test_the_gain_of_learned_weights_counts_groups(
    relook: Relook, sources: Words, policy: Path, tmp_path: Path
) -> None:
    common = ("calibrate", *sources, "-p", policy, "--weights", "learn", "--json")
    alone = json.loads(relook.ok(*common, "--out", tmp_path / "alone.json").out)["weights"]
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"{place % 2}\n" for place in range(alone["images"])))
    found = relook.ok(*common, "--group", ids, "--out", tmp_path / "grouped.json").out
    grouped = json.loads(found)["weights"]
    reach = [one["gain"][2] - one["gain"][1] for one in (alone, grouped)]
    assert reach[1] > reach[0] > 0


@pytest.mark.parametrize(
    ("options", "told"), [(("--weights", "lern"), "learn"), (("--balanced",), "--balanced")]
)
def test_what_cannot_be_weighed_is_told(
    relook: Relook, sources: Words, policy: Path, options: tuple[str, ...], told: str
) -> None:
    common = ("calibrate", *sources, "-p", policy, "--weights", "always")
    assert told in relook.refused(*common, *options).err
