"""What was required of a comparison as a JUnit file, which CI services show as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from relook.evaluation.requirement import Checked
from relook.io.files import for_terminal


def junit_xml(checked: Sequence[Checked], verdict: str) -> str:
    """Return a test case per requirement, failed where it is not met, and the verdict."""
    failures = sum(not one.met for one in checked)
    counts = {"tests": str(len(checked)), "failures": str(failures), "errors": "0"}
    suite = ElementTree.Element("testsuite", {"name": "relook compare", **counts})
    for one in checked:
        named = {"classname": "relook.compare", "name": for_terminal(one.requirement)}
        case = ElementTree.SubElement(suite, "testcase", named)
        part = ElementTree.SubElement(case, "system-out" if one.met else "failure")
        part.text = for_terminal(str(one))
        if not one.met:
            part.set("message", part.text)
    ElementTree.SubElement(suite, "system-out").text = for_terminal(verdict)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
