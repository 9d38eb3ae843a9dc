"""The demo over several seeds, as the table in docs/results.md.

Each seed trains its own network, draws its own pool and makes its own split. Finished seeds
are kept in --out and not run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.evaluation.comparison import Comparison, Row, load_comparison
from relook.numerics.intervals import Interval, mean_and_deviation
from relook.studies.demo import BUDGETS, run_demo, trained_network

HEAD = "| seed | plain | random crops | learned | views | over plain | over the best baseline |"


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = 5,
    out: Annotated[Path, typer.Option(help="Where the demos are kept.")] = Path("runs/demo"),
) -> None:
    """Run the demo for each seed and print held-out cLL as a Markdown table."""
    found = [_comparison(out, seed) for seed in range(seeds)]
    print(HEAD)
    print("| --- " * 7 + "|")
    for seed, comparison in enumerate(found):
        print(_line(seed, comparison))
    ahead = sum(
        _cll(_learned(one)) > max(_cll(_row(one, "plain", 1)), _cll(_row(one, "cf", BUDGETS[-1])))
        for one in found
    )
    gains = [_cll(_learned(one)) - _cll(_row(one, "plain", 1)) for one in found]
    mean, deviation = mean_and_deviation(gains)
    print(
        f"\nAhead of both on {ahead} of {seeds} seeds; gain over plain {mean:.4f} ± {deviation:.4f}"
    )


def _comparison(out: Path, seed: int) -> Comparison:
    path = out / f"seed-{seed}" / "comparison.json"
    if path.exists():
        done = load_comparison(path)
        if done.budgets == BUDGETS:
            return done
    return run_demo(out, trained_network(out, seed), seed=seed).comparison


def _line(seed: int, comparison: Comparison) -> str:
    learned = _learned(comparison)
    over_plain, over_rival = learned.over_plain or {}, learned.over_rival or {}
    cells = (
        str(seed),
        f"{_cll(_row(comparison, 'plain', 1)):.4f}",
        f"{_cll(_row(comparison, 'cf', BUDGETS[-1])):.4f}",
        f"**{_cll(learned):.4f}**",
        str(learned.views),
        _interval(over_plain["cll"]),
        f"{_interval(over_rival['cll'])} ({learned.rival})",
    )
    return f"| {' | '.join(cells)} |".replace("-", "−")


def _learned(comparison: Comparison) -> Row:
    return max((r for r in comparison.rows if r.method == "gps"), key=lambda row: row.budget)


def _row(comparison: Comparison, method: str, budget: int) -> Row:
    row = comparison.row(method, budget)
    assert row is not None
    return row


def _cll(row: Row) -> float:
    return row.metrics["cll"].mean


def _interval(one: Interval) -> str:
    return f"{one.estimate:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"


if __name__ == "__main__":
    typer.run(main)
