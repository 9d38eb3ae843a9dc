"""Racing: judge the pool on few informative images first, and drop candidates without promise.

Most images are easy under every view and hardly distinguish candidates. A few *pilot candidates*
are predicted on all search images and decide which images come first and what they weigh
(`racing_images.py`). The pool is predicted on the first sixteenth; then, as the images
double (1/16, 1/8, 1/4), the pool is cut, and only the survivors are predicted on the next images.
Rounds on fewer than `MIN_IMAGES` are skipped. The selection itself is the ordinary search
among the survivors, on all search images.

The rule. Greedy search combines candidates that complement each other, so none is judged by its own
score. On each of ten or more bootstrap resamples of the images seen so far, a greedy search is
run (the first team), and another one without the first one's picks (the reserves). A place in a
first team is worth two votes, in the reserves one. Resampling continues until as many candidates
have a vote as may stay, or a hundred times. Candidates without a vote are dropped; of the others
the best 30, 20 and 12 % of the pool stay, but never fewer than `SPARE` × the policy's length.
Candidates to be kept in any case, a conservative search's first defaults, are the pilots and count
among those that stay.

A candidate that gets a vote on a share p of all resamples has none in R of them with probability
(1 − p)^R: with R = 10, a candidate that matters on 26 % of the resamples gets a vote with 95 %
confidence. One that helps only on kinds of images absent from the first round is lost.
docs/performance.md has measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.foundation.progress import Progress, part_of
from relook.io.fingerprint import JSON
from relook.numerics.arrays import FloatArray, Indices, Labels
from relook.numerics.randomness import check_seed
from relook.selection.greedy import COMPILED_FROM, PlainScorer, SearchResult, search_with
from relook.selection.objectives import OBJECTIVES, Objective, UserObjective, class_weights
from relook.selection.racing_images import ImageOrder, image_order

ROUNDS = ((1 / 16, 0.30), (1 / 8, 0.20), (1 / 4, 0.12))
"""For each round: the share of the images seen by then, and of the pool that may stay."""

PILOTS = 0.02
"""The share of the pool that is predicted on all images from the start."""

RESAMPLES, MOST_RESAMPLES = 10, 100
"""The least and the most resamples: more while fewer candidates have a vote than may stay."""

TEAM = 10
"""The most entries of a team: the first ones matter most."""

SPARE = 1.2
MIN_IMAGES = 100
"""A round on fewer images would be left to chance."""

Predict = Callable[[str, Indices, Indices, Progress | None], NDArray[np.float32]]
"""Called with a round's name, its candidates and images, and a progress callback for its passes;
returns log-probabilities `[candidate, image, class]`."""


@dataclass(frozen=True)
class Race:
    """The survivors of a race, with predictions `[survivor, image, class]`, and its cost.

    `survivors` are places in the pool, ascending; `passes` are the model's, `full_passes` those
    without a race; `rounds` are pairs of images seen and candidates left.
    """

    survivors: Indices
    log_probs: NDArray[np.float32]
    passes: int
    full_passes: int
    rounds: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, JSON]:
        """Return the cost, for the run's record."""
        return {
            "rounds": [{"images": seen, "candidates": left} for seen, left in self.rounds],
            "passes": self.passes,
            "full_passes": self.full_passes,
        }


@dataclass(frozen=True)
class _Predicted:
    """Predictions `[candidate, image, class]` of some candidates on some images, by their places.

    Never of the whole pool on all images, which may not fit into memory.
    """

    candidates: Indices
    images: Indices
    log_probs: NDArray[np.float32]

    def only(self, candidates: Indices) -> _Predicted:
        """Return the predictions of some candidates."""
        rows = np.isin(self.candidates, candidates)
        return _Predicted(self.candidates[rows], self.images, self.log_probs[rows])


def _gather(
    parts: Sequence[_Predicted], candidates: Indices, images: Indices
) -> NDArray[np.float32]:
    """Return the predictions of these candidates on these images, in their order."""
    shape = (len(candidates), len(images), parts[0].log_probs.shape[2])
    gathered = np.empty(shape, dtype=np.float32)
    for part in parts:
        _, rows, own_rows = np.intersect1d(candidates, part.candidates, return_indices=True)
        _, columns, own_columns = np.intersect1d(images, part.images, return_indices=True)
        gathered[np.ix_(rows, columns)] = part.log_probs[np.ix_(own_rows, own_columns)]
    return gathered


@dataclass(frozen=True)
class _VoteRules:
    """Everything that decides the votes, apart from the predictions."""

    objective: Objective
    length: int
    seed: int
    images: ImageOrder


def race(
    predict: Predict,
    labels: Labels,
    candidates: int,
    length: int,
    *,
    objective: str | UserObjective = "cll",
    balanced: bool = False,
    seed: int = 0,
    kept: Sequence[int] = (),
    progress: Progress | None = None,
) -> Race:
    """Predict a pool on growing parts of the images, and drop candidates that are hardly picked.

    `labels` `[image]` are those of the search images. The candidates `kept` are never dropped.
    `predict` is called once for each prediction. Seed and predictions decide everything, so that a
    race over stored predictions repeats itself.
    """
    if candidates < 1:
        raise RelookError(f"expected at least 1 candidate to race, got {candidates}")
    row, seed = _table_objective(objective), check_seed(seed)
    balance = class_weights(labels) if balanced else np.ones(len(labels))
    sizes = round_sizes(len(labels))
    most = most_passes(len(labels), candidates, length, len(kept))
    always_kept = np.unique(np.asarray(kept, dtype=np.int64))
    pilots = always_kept if len(always_kept) else pilots_of(candidates)
    all_images = np.arange(len(labels))
    of_pilots = predict("pilots", pilots, all_images, part_of(progress, 0, most))
    images = image_order(of_pilots, labels, balance, seed)
    rules = _VoteRules(row, min(length, TEAM), seed, images)
    passes = len(pilots) * len(labels)
    predicted = [_Predicted(pilots, all_images, of_pilots)]
    alive, rounds = np.arange(candidates), []
    for number, (begin, end) in enumerate(zip((0, *sizes), (*sizes, len(labels)), strict=True)):
        others, new = np.setdiff1d(alive, pilots), np.sort(images.order[begin:end])
        if len(others) and len(new):
            report = part_of(progress, passes, most)
            log_probs = predict(f"{number + 1}", others, new, report)
            predicted.append(_Predicted(others, new, log_probs))
            passes += len(others) * len(new)
        if end < len(labels):
            seen = images.order[:end]
            places = places_after(number, len(sizes), candidates, length)
            log_probs = _gather(predicted, alive, seen)
            votes = np.zeros(candidates)
            votes[alive] = _votes(log_probs, labels[seen], rules, number, places)
            free = max(0, places - len(always_kept))
            voted = survivors(np.setdiff1d(alive, always_kept), votes, free)
            alive = np.union1d(always_kept, voted)
            predicted = [part.only(alive) for part in predicted]
        rounds.append((end, len(alive)))
    if progress is not None:
        progress(most, most)
    log_probs = _gather(predicted, alive, all_images)
    return Race(alive, log_probs, passes, candidates * len(labels), tuple(rounds))


def pilots_of(candidates: int) -> Indices:
    """Return the candidates to predict first: evenly spread, with the last, the plain image."""
    count = min(candidates, max(2, round(PILOTS * candidates)))
    return np.unique(np.linspace(0, candidates - 1, count).round().astype(np.int64))


def round_sizes(images: int) -> tuple[int, ...]:
    """Return the number of images seen by the end of each round but the last, which sees all."""
    sizes = (round(share * images) for share, _ in ROUNDS)
    return tuple(size for size in sizes if size >= MIN_IMAGES)


def places_after(number: int, rounds: int, candidates: int, length: int) -> int:
    """Return how many candidates may stay after a round (0: the first) of `rounds`."""
    _, share = ROUNDS[len(ROUNDS) - rounds + number]
    return min(candidates, max(round(share * candidates), round(SPARE * length)))


def most_passes(images: int, candidates: int, length: int, kept: int = 0) -> int:
    """Return the most model passes of a race in which `kept` candidates are never dropped."""
    sizes = round_sizes(images)
    pilots = kept or len(pilots_of(candidates))
    places = [places_after(i, len(sizes), candidates, length) for i in range(len(sizes))]
    alive = [max(0, place - kept) for place in places]
    parts = np.diff((0, *sizes, images))
    counts = (candidates - pilots, *alive)
    others = sum(int(part) * count for part, count in zip(parts, counts, strict=True))
    return pilots * images + others


def most_survivors(images: int, candidates: int, length: int) -> int:
    """Return the most candidates that a race leaves."""
    rounds = len(round_sizes(images))
    return places_after(rounds - 1, rounds, candidates, length) if rounds else candidates


def survivors(alive: Indices, votes: FloatArray, places: int) -> Indices:
    """Return the candidates that stay, ascending: most votes first, then the lower place."""
    best = alive[np.lexsort((alive, -votes[alive]))[:places]]
    return np.sort(best[votes[best] > 0])


def _votes(
    log_probs: NDArray[np.float32], labels: Labels, rules: _VoteRules, number: int, places: int
) -> FloatArray:
    """Return each candidate's votes on the first images, over resamples."""
    generator = np.random.default_rng([rules.seed, number])
    seen = rules.images.order[: len(labels)]
    weights = rules.images.weights(len(labels))
    votes = np.zeros(len(log_probs))
    for turn in range(MOST_RESAMPLES):
        if turn >= RESAMPLES and np.count_nonzero(votes) >= min(places, len(votes)):
            break
        counts = generator.multinomial(len(labels), np.full(len(labels), 1 / len(labels)))
        rows = np.flatnonzero(counts)
        own = rules.images.matched(seen[rows], weights[rows] * counts[rows])
        left = np.arange(len(log_probs))
        for worth in (2, 1):  # votes of the first team, and of the reserves
            found = _search(log_probs[np.ix_(left, rows)], labels[rows], own, rules)
            team = np.unique(found.picks)
            votes[left[team]] += worth
            left = np.delete(left, team)
            if len(left) == 0:
                break
    return votes


def _search(
    log_probs: NDArray[np.float32], labels: Labels, weights: FloatArray, rules: _VoteRules
) -> SearchResult:
    values = 2 * RESAMPLES * log_probs.size  # in all searches of a round
    if rules.objective is OBJECTIVES["cll"] and values >= COMPILED_FROM:
        from relook.selection.kernels.scorer import CompiledScorer  # numba: only where it pays

        with CompiledScorer(log_probs, labels, weights) as scorer:
            return search_with(scorer, log_probs, rules.length)
    plain = PlainScorer(log_probs, labels, rules.objective, weights)
    return search_with(plain, log_probs, rules.length)


def _table_objective(objective: str | UserObjective) -> Objective:
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        raise RelookError(
            f"a race weighs its images: expected an objective of {', '.join(OBJECTIVES)}, got "
            f"{objective if isinstance(objective, str) else 'a function'}; search without a race"
        )
    return OBJECTIVES[objective]
