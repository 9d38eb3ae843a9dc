from pathlib import Path
from typing import Any

import pytest

import relook
from relook.cli.verbs import VERBS, load

pytest.importorskip("mkdocs", reason="needs relook[docs]")

import command_pages
import site_hooks

DOCS = site_hooks.ROOT / "docs"


def pages_of(entries: Any) -> list[str]:
    return list(site_hooks._leaves(entries))


def real_pages() -> list[str]:
    return [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = pages_of(site_hooks.navigation(real_pages()))
    assert len(listed) == len(set(listed))
    assert set(listed) >= set(real_pages())


def test_every_howto_page_has_a_group_of_its_own_kind() -> None:
    howto = {page.stem for page in (DOCS / "howto").glob("*.md")}
    assert howto == {name for group in site_hooks.HOWTO.values() for name in group}


def test_pages_that_nobody_named_find_a_place() -> None:
    new = ["howto/zebra.md", "essay.md", "results/wrn.md"]
    nav = site_hooks.navigation([*real_pages(), *new])
    sections = {title: pages_of(pages) for entry in nav[1:] for title, pages in entry.items()}
    assert "howto/zebra.md" in sections["How to"]
    assert "essay.md" in sections["Project"]
    assert "results/wrn.md" in sections["Measured"]


def test_a_named_page_that_is_not_written_yet_is_left_out() -> None:
    assert "howto/cluster.md" not in pages_of(site_hooks.navigation(["howto/timm.md"]))
    assert "howto/cluster.md" in pages_of(site_hooks.navigation(["howto/cluster.md"]))


def test_every_public_name_is_described() -> None:
    text = site_hooks.public_names()
    described = [line.split()[1] for line in text.splitlines() if line.startswith("::: ")]
    assert sorted(described) == sorted(
        f"relook.{name}" for name in relook.__all__ if not name.startswith("_")
    )


@pytest.mark.parametrize("name", list(VERBS))
def test_every_option_is_on_its_commands_page(name: str) -> None:
    page = command_pages.command_pages()[f"reference/commands/{name.replace(' ', '-')}.md"]
    shown = [one for one in load(VERBS[name]).params if not getattr(one, "hidden", False)]
    options = {option for param in shown for option in param.opts}
    missing = {option for option in options if f"`{option}`" not in page and option[0] == "-"}
    assert not missing - {"--help"}
    assert "[default" not in page


def test_help_is_read_as_it_was_written() -> None:
    written = "torch:package.module:factory\\[@FILE], see --size; a_b and 3 * 4 < 5"
    assert command_pages._markdown(written) == (
        "`torch:package.module:factory[@FILE]`, see `--size`; a\\_b and 3 \\* 4 \\< 5"
    )


@pytest.mark.parametrize(
    ("described", "text", "facts"),
    [
        ("Entries.  [default: 20; x>=1]", "Entries.", ["default: `20`", "at least 1"]),
        ("Images.  [required]", "Images.", ["required"]),
        ("Memory.  [default: (a; b)]", "Memory.", ["default: a; b"]),
        ("A list [of names].", "A list [of names].", []),
    ],
)
def test_facts_are_set_apart_from_help(described: str, text: str, facts: list[str]) -> None:
    assert command_pages._apart(described) == (text, facts)


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("(../../examples/service.py)", "(../source/examples/service.py.md)"),
        ("(../../CHANGELOG.md#020)", "(../changelog.md#020)"),
        ("(folder.md)", "(folder.md)"),
        ("(../performance.md#views)", "(../performance.md#views)"),
        ("(missing.md)", "(missing.md)"),
        ("(https://example.org/a)", "(https://example.org/a)"),
        ("(#here)", "(#here)"),
    ],
)
def test_links_that_leave_the_docs_are_led_to_their_pages(link: str, led: str) -> None:
    place = Path("docs/howto/deploy.md")
    assert site_hooks.with_links(f"[x]{link}", place, "howto/deploy.md") == f"[x]{led}"


def test_a_page_of_the_root_links_into_the_docs() -> None:
    page = site_hooks.source_page(Path("CONTRIBUTING.md"))
    assert "](words.md)" in page


def test_code_outside_the_docs_is_shown_as_it_is() -> None:
    page = site_hooks.source_page(Path("examples/service.py"))
    code = (site_hooks.ROOT / "examples" / "service.py").read_text("utf-8")
    assert page.startswith("# service.py\n")
    assert f"````python\n{code}````" in page
