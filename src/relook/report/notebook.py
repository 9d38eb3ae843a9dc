"""How policies, searches and comparisons show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from relook.errors import MissingExtraError
from relook.evaluation.comparison import Comparison
from relook.policy import Policy
from relook.policy.transform_counts import transform_statistics
from relook.policy_search.search import PolicySearch
from relook.report import gallery, results
from relook.report.markup import Html, element
from relook.report.page import policy_words, resource
from relook.report.pictures import builtin_picture, policy_views
from relook.report.style import PAGE_VARIABLES

_SIDE = 64
_MOST_VIEWS = 40
_MUTED = "opacity:.7;font-size:90%"
# A notebook has a theme of its own: text and lines take its colour.
_COLORS = {
    **{variable: color for color, variable in PAGE_VARIABLES.items()},
    "--ink": "currentColor",
    "--faint": "color-mix(in srgb, currentColor 70%, transparent)",
    "--grid": "color-mix(in srgb, currentColor 18%, transparent)",
    "--paper": "transparent",
}


def html(shown: object) -> str:
    """Return what relook shows of its own objects."""
    if isinstance(shown, Policy):
        return policy_html(shown)
    if isinstance(shown, Comparison):
        return comparison_html(shown)
    if isinstance(shown, PolicySearch):
        return search_html(shown)
    raise TypeError(f"expected a policy, a comparison or a search, got {type(shown).__name__}")


def policy_html(policy: Policy) -> str:
    """Return a policy as pictures of its views (on a built-in image) and a line on each."""
    return _wrapped(_policy_part(policy))


def comparison_html(comparison: Comparison) -> str:
    """Return a comparison as its verdict, its table and, with matplotlib, its curves."""
    return _wrapped(_comparison_part(comparison))


def search_html(found: PolicySearch) -> str:
    """Return a search's result: the verdict and table first, then the policy."""
    scores = found.trace.scores
    words = ""
    if scores:
        words = f"On the search images the score went from {scores[0]:.4f} to {scores[-1]:.4f}."
    return _wrapped(
        _comparison_part(found.comparison),
        element("p", words, style=_MUTED),
        _policy_part(found.policy),
    )


def _wrapped(*parts: Html) -> str:
    style = element("style", Html(resource("notebook.css")))
    colors = ";".join(f"{variable}:{color}" for variable, color in _COLORS.items())
    return str(element("div", style, *parts, class_="relook", style=colors))


def _policy_part(policy: Policy) -> Html:
    shown = builtin_picture(_SIDE)
    cards = []
    for sub, number, views in islice(policy_views(policy, shown[None]), _MOST_VIEWS):
        caption = element("figcaption", element("b", f"{number} ×"), gallery.step_list(sub))
        picture = gallery.image_element(views[0], str(sub), _SIDE)
        cards.append(element("figure", picture, caption))
    uses = ", ".join(
        f"{use.transform} {use.count} × at {use.magnitude_text}" if use.has_magnitude
        else f"{use.transform} {use.count} ×"
        for use in transform_statistics(policy)
    )  # fmt: skip
    left = len(policy.counts()) - len(cards)
    return element(
        "div",
        element("p", policy_words(policy)),
        element("div", *cards, class_="views"),
        element("p", f"and {left} more", style=_MUTED) if left > 0 else None,
        element("p", f"Transforms: {uses}.", style=_MUTED) if uses else None,
    )


def _comparison_part(comparison: Comparison) -> Html:
    return element(
        "div",
        element("p", element("b", comparison.verdict.sentence)),
        results.table(comparison),
        element("div", *_curves(comparison), class_="figures"),
    )


def _curves(comparison: Comparison) -> Sequence[Html]:
    try:
        from relook.report.figures import comparison_drawings, inline_svg
    except MissingExtraError:
        return ()
    drawings = comparison_drawings(comparison, legend=True)
    return [inline_svg(one) for one in drawings if one.name in ("cll", "accuracy")]
