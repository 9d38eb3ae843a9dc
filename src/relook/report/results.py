"""The verdict, the table of methods × budgets and the legend, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison import Comparison, Row, Verdict
from relook.foundation import wording
from relook.numerics.intervals import Interval
from relook.report.markup import Html, element
from relook.report.series import has_runs, within_budget
from relook.report.style import PAGE_VARIABLES, MethodStyle, method_styles, shorten

_OUTCOMES = {
    "helps": ("helps", "It helps"),
    "no difference": ("same", "No difference"),
    "hurts": ("hurts", "It hurts"),
}
_POINTS = 100.0


def verdict(comparison: Comparison, notes: Iterable[str] = ()) -> Html:
    """Return the answer in plain words, the recommended row's figures, and notes on them."""
    found = comparison.verdict
    kind, mark = _OUTCOMES.get(found.outcome, ("same", found.outcome))
    return element(
        "section",
        element("p", mark, class_=f"mark {kind}"),
        element("p", _without_mark(found), class_="sentence"),
        _tiles(comparison),
        *(element("p", note, class_="note") for note in notes),
        id="verdict",
        aria_label="Verdict",
    )


def legend(comparison: Comparison) -> Html:
    """Return the methods with the colour, line and marker that they have in every figure."""
    items = [
        element("li", swatch(style), style.label, class_="strong" if style.is_policy else None)
        for style in method_styles(comparison.rows).values()
    ]
    return element("ul", *items, class_="legend", aria_label="Methods")


def swatch(style: MethodStyle) -> Html:
    """Return a small picture of a method's line and marker."""
    color = f"var({PAGE_VARIABLES[style.color]})"
    dashes = " ".join(f"{dash:g}" for dash in style.dashes) or None
    line = element("line", x1=1, y1=7, x2=29, y2=7, stroke=None, stroke_dasharray=dashes)
    if style.marker:
        corners = " ".join(f"{15 + 3.4 * x:.2f},{7 - 3.4 * y:.2f}" for x, y in style.marker)
        marker = element("polygon", points=corners)
    else:
        marker = element("circle", cx=15, cy=7, r=4)
    width = 2.6 if style.is_policy else 1.5
    return element(
        "svg",
        line,
        marker,
        viewBox="0 0 30 14",
        aria_hidden="true",
        class_="swatch",
        style=f"stroke:{color};fill:{color};stroke-width:{width}",
    )


def table(comparison: Comparison) -> Html:
    """Return what every method reaches within every budget."""
    groups = {budget: within_budget(comparison, budget) for budget in comparison.budgets}
    reach = _reach(comparison)
    styles = method_styles(comparison.rows)
    heads = (
        ("Method", None),
        ("Views", "number"),
        ("Time", "number"),
        ("cLL", "number"),
        ("against plain", "difference"),
        ("Accuracy, %", "number"),
        ("against plain, points", "number"),
    )
    head = element("tr", *(element("th", text, scope="col", class_=kind) for text, kind in heads))
    bodies = [_group(budget, rows, styles, reach) for budget, rows in groups.items() if rows]
    return element(
        "div",
        element("table", element("thead", head), *bodies, class_="results"),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label="Methods by budget",
    )


def table_words(comparison: Comparison) -> str:
    """Say how the table is to be read."""
    words = (
        f"What each method reaches with at most so many views, on "
        f"{wording.count(comparison.images, 'held-out image')}. cLL is the calibrated "
        "log-likelihood: higher is better. Time is measured, one plain pass being 1×. "
        "The best of each budget is bold."
    )
    confidence = _confidence(comparison)
    if confidence is not None:
        words += (
            f" Differences come with {100 * confidence:g} % intervals (paired bootstrap over "
            "images); the bar shows the difference in cLL and its interval around no difference."
        )
    if has_runs(comparison):
        words += " ± is the standard deviation over runs."
    return words


def band_words(comparison: Comparison) -> str:
    """Say what the bands of the curves are."""
    confidence = _confidence(comparison)
    single = "" if confidence is None else f"{100 * confidence:g} % interval of the difference to "
    if not has_runs(comparison):
        return f"Bands: {single}the plain image." if single else ""
    words = "Bands: ± one standard deviation over runs"
    return f"{words}; of a method with one run, the {single}the plain image." if single else words


def left_out_words(comparison: Comparison) -> str:
    """Say which methods could not be scored, and why."""
    left_out = comparison.settings.get("left_out")
    if not isinstance(left_out, Mapping) or not left_out:
        return ""
    return "Left out: " + "; ".join(f"{name} ({why})" for name, why in left_out.items()) + "."


def _without_mark(found: Verdict) -> str:
    """Return the sentence without the outcome at its head, which stands above it."""
    rest = found.sentence.removeprefix(f"{found.outcome.capitalize()}: ")
    return rest[:1].upper() + rest[1:]


def _tiles(comparison: Comparison) -> Html | None:
    """Return the recommendation, and the figures of the row that the verdict is about.

    The recommended row is the pick of many, so its own figures would be a little too good.
    """
    found = comparison.verdict
    most = max(comparison.budgets, default=0)
    own = [row for row in comparison.rows if row.method == POLICY_METHOD and row.budget <= most]
    judged = max(own, key=lambda row: row.budget, default=None)
    if judged is None:
        return None
    cll, accuracy = judged.metrics["cll"], judged.metrics["accuracy"]
    label = next(
        (row.label for row in comparison.rows if row.method == found.recommended_method),
        found.recommended_method,
    )
    views = wording.count(judged.views, "view")
    tiles = [
        ("Recommended", wording.count(found.recommended_views, "view"), shorten(label)),
        (f"cLL, {views}", wording.plain(cll.mean, 4), _over_plain(judged, "cll", 4, 1.0)),
        (
            f"Accuracy, {views}",
            f"{wording.plain(accuracy.mean * _POINTS, 2)} %",
            _over_plain(judged, "accuracy", 2, _POINTS),
        ),
        (f"Time, {views}", wording.slowdown(judged.slowdown), "one plain pass = 1×"),
    ]
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", value),
                element("dd", small, class_="small"),
            )
            for name, value, small in tiles
        ),
        class_="tiles",
    )


def _over_plain(row: Row, metric: str, digits: int, scale: float) -> str:
    found = (row.over_plain or {}).get(metric)
    if found is None:
        return "the plain image"
    difference = wording.signed(found.estimate * scale, digits)
    return f"{difference} {wording.interval(found, digits, scale)} against plain"


def _group(budget: int, rows: list[Row], styles: dict[str, MethodStyle], reach: float) -> Html:
    best = {metric: max(row.metrics[metric].mean for row in rows) for metric in ("cll", "accuracy")}
    title = element(
        "tr",
        element("th", f"At most {wording.count(budget, 'view')}", colspan=7, scope="rowgroup"),
        class_="budget",
    )
    lines = [
        element(
            "tr",
            element("th", _method(styles[row.method]), scope="row"),
            element("td", str(row.views), class_="number"),
            element("td", wording.slowdown(row.slowdown), class_="number"),
            _value(row, "cll", best, 4, 1.0),
            _difference(row, "cll", 4, 1.0, reach),
            _value(row, "accuracy", best, 2, _POINTS),
            _difference(row, "accuracy", 2, _POINTS, None),
            class_="policy" if styles[row.method].is_policy else None,
        )
        for row in rows
    ]
    return element("tbody", title, *lines)


def _method(style: MethodStyle) -> Html:
    return element("span", swatch(style), element("span", style.label), class_="method")


def _value(row: Row, metric: str, best: dict[str, float], digits: int, scale: float) -> Html:
    found = row.metrics[metric]
    text = wording.measured(found, digits, scale)
    is_best = found.mean >= best[metric]
    return element("td", element("b", text) if is_best else text, class_="number")


def _difference(row: Row, metric: str, digits: int, scale: float, reach: float | None) -> Html:
    found = (row.over_plain or {}).get(metric)
    if found is None:
        return element("td", element("span", "–", class_="interval"), class_="number")
    return element(
        "td",
        None if reach is None else _whisker(found, reach),
        wording.signed(found.estimate * scale, digits),
        " ",
        element("span", wording.interval(found, digits, scale), class_="interval"),
        class_="number difference",
    )


def _whisker(found: Interval, reach: float) -> Html:
    """Return a dot and its interval on −reach … +reach; what lies beyond ends at the edge."""

    def place(value: float) -> float:
        return round(40 + 37 * max(-1.0, min(1.0, value / reach)), 2)

    kind = "up" if found.low > 0 else "down" if found.high < 0 else "open"
    inside = abs(found.estimate) <= reach
    return element(
        "svg",
        element("line", x1=40, x2=40, y1=0, y2=14, class_="zero"),
        element("line", x1=place(found.low), x2=place(found.high), y1=7, y2=7),
        element("circle", cx=place(found.estimate), cy=7, r=2.6) if inside else _arrow(found),
        viewBox="0 0 80 14",
        class_=f"whisker {kind}",
        aria_hidden="true",
    )


def _arrow(found: Interval) -> Html:
    points = "80,7 73,3 73,11" if found.estimate > 0 else "0,7 7,3 7,11"
    return element("polygon", points=points)


def _reach(comparison: Comparison) -> float:
    """Return how far the whiskers reach: past every interval of the policy."""
    policy = [row for row in comparison.rows if method_styles([row])[row.method].is_policy]
    ends = [
        abs(end)
        for row in policy or comparison.rows
        if row.over_plain and "cll" in row.over_plain
        for end in (row.over_plain["cll"].low, row.over_plain["cll"].high)
    ]
    return 1.15 * max(ends, default=1.0) or 1.0


def _confidence(comparison: Comparison) -> float | None:
    for row in comparison.rows:
        for found in (row.over_plain or {}).values():
            return found.confidence
    return None


def leaving_words(names: tuple[str, ...]) -> str:
    """Say which methods the curves do not show."""
    return f"Below what is shown, in part or whole: {', '.join(names)}." if names else ""


def caption(title: str, *sentences: str) -> Html:
    """Return a figure's caption: its title, then how to read it."""
    rest = "".join(f" {sentence}" for sentence in sentences if sentence)
    return element("figcaption", element("b", title), rest)
