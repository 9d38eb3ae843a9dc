"""Racing: judge the pool on few, informative images first, and spend the passes on what may matter.

Most images are easy under every view and hardly distinguish candidates. A few *pilot candidates*
are predicted on all search images and decide which images come first and what they weigh
(`racing_images.py`). The pool is predicted on the first sixteenth; then, as the images
double (1/16, 1/8, 1/4), the pool is cut, and only what is left is predicted on the next images.
A round on fewer than `LEAST_IMAGES` is left out. The selection itself is the ordinary search
among the survivors, on all search images.

The rule. Greedy search wants candidates that complete each other, so none is judged by its own
score. On each of ten or more bootstrap resamples of the images seen so far a greedy search is
run (the first team), and another one without what the first has picked (the reserves). A place in a
first team is worth two votes, in the reserves one. Resamples go on until as many candidates have a
vote as may stay, a hundred at most. Who has none is dropped; of the others the best 30, 20 and 12 %
of the pool stay, but never fewer than `SPARE` × the policy's length. Candidates to be kept in any
case, a conservative search's first defaults, are the pilots and count among those that stay.

A candidate that would get a vote on a share p of all resamples is without one in R of them with
probability (1 − p)^R: with R = 10, what matters on 26 % of the resamples has a vote with 95 %
confidence. One that helps only on kinds of images of which the first round has none is lost.
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
"""At least the first number, and more while fewer candidates have a vote than may stay."""

TEAM = 10
"""The most entries of a resample's search: the first ones matter most."""

SPARE = 1.2
LEAST_IMAGES = 100
"""A round on fewer images would be a lottery."""

Predict = Callable[[str, Indices, Indices, Progress | None], NDArray[np.float32]]
"""Called with a round's name, its candidates and images, and what to report its passes to;
returns log-probabilities `[candidate, image, class]`."""


@dataclass(frozen=True)
class Race:
    """Who is left, with predictions `[survivor, image, class]`, and what it cost.

    `survivors` are places in the pool, ascending; `passes` are the model's, of `full_passes`
    without a race; `rounds` are pairs of images seen and candidates left after it.
    """

    survivors: Indices
    log_probs: NDArray[np.float32]
    passes: int
    full_passes: int
    rounds: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, JSON]:
        """Return what it cost, for the run's record."""
        return {
            "rounds": [{"images": seen, "candidates": left} for seen, left in self.rounds],
            "passes": self.passes,
            "full_passes": self.full_passes,
        }


@dataclass(frozen=True)
class _Known:
    """What has been predicted: candidates and images by their places, and `[candidate, image,
    class]` of them. Never the whole pool on all images: that may not fit into memory."""

    candidates: Indices
    images: Indices
    log_probs: NDArray[np.float32]

    def only(self, candidates: Indices) -> _Known:
        """Return what is known of some candidates."""
        left = np.isin(self.candidates, candidates)
        return _Known(self.candidates[left], self.images, self.log_probs[left])


def _gathered(known: Sequence[_Known], candidates: Indices, images: Indices) -> NDArray[np.float32]:
    """Return the predictions of these candidates on these images, in their order."""
    shape = (len(candidates), len(images), known[0].log_probs.shape[2])
    gathered = np.empty(shape, dtype=np.float32)
    for part in known:
        _, rows, own_rows = np.intersect1d(candidates, part.candidates, return_indices=True)
        _, columns, own_columns = np.intersect1d(images, part.images, return_indices=True)
        gathered[np.ix_(rows, columns)] = part.log_probs[np.ix_(own_rows, own_columns)]
    return gathered


@dataclass(frozen=True)
class _Judge:
    """What decides the votes, apart from the predictions."""

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
    """Predict a pool on growing parts of the images, and drop what is hardly ever picked.

    `labels` `[image]` are those of the search images. The candidates `kept` are never dropped.
    `predict` is asked for no prediction twice. Everything follows from the seed and the
    predictions, so that a race over stored predictions repeats itself.
    """
    if candidates < 1:
        raise RelookError(f"expected at least 1 candidate to race, got {candidates}")
    named, seed = _named(objective), check_seed(seed)
    balance = class_weights(labels) if balanced else np.ones(len(labels))
    sizes = round_sizes(len(labels))
    most = most_passes(len(labels), candidates, length, len(kept))
    stay = np.unique(np.asarray(kept, dtype=np.int64))
    pilots = stay if len(stay) else pilots_of(candidates)
    everyone = np.arange(len(labels))
    piloted = predict("pilots", pilots, everyone, part_of(progress, 0, most))
    images = image_order(piloted, labels, balance, seed)
    judge = _Judge(named, min(length, TEAM), seed, images)
    passes = len(pilots) * len(labels)
    known = [_Known(pilots, everyone, piloted)]
    alive, rounds = np.arange(candidates), []
    for number, (begin, end) in enumerate(zip((0, *sizes), (*sizes, len(labels)), strict=True)):
        asked, part = np.setdiff1d(alive, pilots), np.sort(images.order[begin:end])
        if len(asked) and len(part):
            report = part_of(progress, passes, most)
            known.append(_Known(asked, part, predict(f"{number + 1}", asked, part, report)))
            passes += len(asked) * len(part)
        if end < len(labels):
            seen = images.order[:end]
            places = places_after(number, len(sizes), candidates, length)
            shown = _gathered(known, alive, seen)
            votes = np.zeros(candidates)
            votes[alive] = _votes(shown, labels[seen], judge, number, places)
            free = max(0, places - len(stay))
            others = survivors(np.setdiff1d(alive, stay), votes, free)
            alive = np.union1d(stay, others)
            known = [part.only(alive) for part in known]
        rounds.append((end, len(alive)))
    if progress is not None:
        progress(most, most)
    log_probs = _gathered(known, alive, everyone)
    return Race(alive, log_probs, passes, candidates * len(labels), tuple(rounds))


def pilots_of(candidates: int) -> Indices:
    """Return the candidates to predict first: evenly spread, with the last, the plain image."""
    count = min(candidates, max(2, round(PILOTS * candidates)))
    return np.unique(np.linspace(0, candidates - 1, count).round().astype(np.int64))


def round_sizes(images: int) -> tuple[int, ...]:
    """Return how many images are seen by each round but the last, which sees all."""
    sizes = (round(share * images) for share, _ in ROUNDS)
    return tuple(size for size in sizes if size >= LEAST_IMAGES)


def places_after(number: int, rounds: int, candidates: int, length: int) -> int:
    """Return how many candidates may stay after a round (0: the first) of `rounds`."""
    _, share = ROUNDS[len(ROUNDS) - rounds + number]
    return min(candidates, max(round(share * candidates), round(SPARE * length)))


def most_passes(images: int, candidates: int, length: int, kept: int = 0) -> int:
    """Return how many model passes a race takes at most, if `kept` candidates are kept."""
    sizes = round_sizes(images)
    pilots = kept or len(pilots_of(candidates))
    places = [places_after(i, len(sizes), candidates, length) for i in range(len(sizes))]
    alive = [max(0, place - kept) for place in places]
    parts = np.diff((0, *sizes, images))
    asked = sum(int(part) * n for part, n in zip(parts, (candidates - pilots, *alive), strict=True))
    return pilots * images + asked


def most_survivors(images: int, candidates: int, length: int) -> int:
    """Return how many candidates a race leaves at most."""
    rounds = len(round_sizes(images))
    return places_after(rounds - 1, rounds, candidates, length) if rounds else candidates


def survivors(alive: Indices, votes: FloatArray, places: int) -> Indices:
    """Return who stays, ascending: the most votes first, then the lower place; none without."""
    best = alive[np.lexsort((alive, -votes[alive]))[:places]]
    return np.sort(best[votes[best] > 0])


def _votes(
    log_probs: NDArray[np.float32], labels: Labels, judge: _Judge, number: int, places: int
) -> FloatArray:
    """Return each candidate's votes on the first images: two a first team, one the reserves."""
    generator = np.random.default_rng([judge.seed, number])
    seen = judge.images.order[: len(labels)]
    weights = judge.images.weights(len(labels))
    votes = np.zeros(len(log_probs))
    for turn in range(MOST_RESAMPLES):
        if turn >= RESAMPLES and np.count_nonzero(votes) >= min(places, len(votes)):
            break
        counts = generator.multinomial(len(labels), np.full(len(labels), 1 / len(labels)))
        rows = np.flatnonzero(counts)
        own = judge.images.matched(seen[rows], weights[rows] * counts[rows])
        left = np.arange(len(log_probs))
        for worth in (2, 1):
            found = _search(log_probs[np.ix_(left, rows)], labels[rows], own, judge)
            team = np.unique(found.picks)
            votes[left[team]] += worth
            left = np.delete(left, team)
            if len(left) == 0:
                break
    return votes


def _search(
    log_probs: NDArray[np.float32], labels: Labels, weights: FloatArray, judge: _Judge
) -> SearchResult:
    values = 2 * RESAMPLES * log_probs.size  # of all the searches of a round
    if judge.objective is OBJECTIVES["cll"] and values >= COMPILED_FROM:
        from relook.selection.kernels.scorer import CompiledScorer  # numba: only where it pays

        with CompiledScorer(log_probs, labels, weights) as scorer:
            return search_with(scorer, log_probs, judge.length)
    plain = PlainScorer(log_probs, labels, judge.objective, weights)
    return search_with(plain, log_probs, judge.length)


def _named(objective: str | UserObjective) -> Objective:
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        raise RelookError(
            f"a race weighs its images: expected an objective of {', '.join(OBJECTIVES)}, got "
            f"{objective if isinstance(objective, str) else 'a function'}; search without a race"
        )
    return OBJECTIVES[objective]
