"""Draw the concepts page's figure from the tutorial's run: log-likelihood against temperature.

python tools/temperature_figure.py OUT.svg      (in the tutorial's folder)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import relook
from relook.data import Preparation, load_data
from relook.evaluation.unseen import unseen_places
from relook.models import load_model
from relook.numerics.calibration import fit_temperature, temper
from relook.report.figures import house_style, panel
from relook.report.style import FAINT, PLAIN_COLOR, POLICY_COLOR

RUN = Path("runs/digits")
MODEL = "timm:resnet10t@weights.safetensors"


def held_out() -> relook.Dataset:
    """Return the images that the search has not seen."""
    digits = load_data("folder:digits", Preparation(size=(32, 32), channels=3))
    policy = relook.Policy.load(RUN / "policy.json")
    return digits.subset(unseen_places(digits, [policy]))


def log_likelihood(
    log_probs: NDArray[np.float64], labels: NDArray[np.int64], temperature: float
) -> float:
    """Return the mean log-probability of the true class at a temperature."""
    return float(temper(log_probs, temperature)[np.arange(len(log_probs)), labels].mean())


def main() -> None:
    """Write the figure to the path given."""
    images, predictor = held_out(), load_model(MODEL, size=32)
    policy = relook.Policy.load(RUN / "policy.json")
    plain = relook.Policy((relook.SubPolicy(),))
    shown = (
        (plain, "plain image", PLAIN_COLOR, (-14, -112)),
        (policy, f"{policy.views} views", POLICY_COLOR, (14, 8)),
    )
    temperatures = np.geomspace(0.6, 6, 120)
    with house_style():
        figure, axes = panel()
        for views, label, color, offset in shown:
            model = relook.TTA(predictor, views, temperature=None)
            log_probs = np.log(model.predict_proba(images.plain).astype(np.float64))
            curve = [log_likelihood(log_probs, images.labels, t) for t in temperatures]
            best = fit_temperature(log_probs, images.labels)
            top = log_likelihood(log_probs, images.labels, best)
            axes.plot(temperatures, curve, color=color, linewidth=2)
            axes.plot([best], [top], "o", color=color, markersize=7)
            said = f"{label}: cLL {top:.3f}".replace("-", "−")
            axes.annotate(
                said, (best, top), offset, textcoords="offset points", color=color, ha="center"
            )
        axes.axvline(1, color=FAINT, linewidth=0.8, linestyle="--")
        axes.set(xscale="log", xlabel="temperature", ylabel="Log-likelihood, held out")
        axes.set_xticks([0.6, 1, 2, 3, 6], ["0.6", "1", "2", "3", "6"])
        axes.minorticks_off()
        axes.set_ylim(bottom=-0.8, top=-0.28)
        figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
