"""Nobody types a measured number: it comes from a recording, a table, or arithmetic."""

import re

import jupytext
import pytest
from lab_files import LABS, ROOT

TIMES = r"ns|µs|us|ms|s|seconds?|minutes?"
RATES = r"tokens?/s|tok/s|[KMGT]i?B/s|[GT]?FLOP/s|TFLOPS"
UNITS = rf"{TIMES}|{RATES}|times|x|×|%"
MEASURED = re.compile(rf"(?<![\w.^-])\d[\d,.]*\s?(?:{UNITS})(?![\w/])")
# Not prose: code, mathematics, glued numbers, comments of MyST, tables' own header boxes.
NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$]*?\$|\{glue:[^}]*\}`[^`]*`|^%.*?$|^---\n.*?\n---",
    re.DOTALL | re.MULTILINE,
)
GLUED = "glue it from results.load or the planner"
LEFT_OUT = "leave it to the cells and their figures"
PAGES = sorted((ROOT / "book").glob("*.md"))


def typed(text: str) -> list[str]:
    """Numbers with a unit of time, rate or ratio that stand in prose."""
    return MEASURED.findall(NOT_PROSE.sub(" ", text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It took 3.2 ms here.", ["3.2 ms"]),
        ("It is 4 times as fast, or 12.5 GB/s.", ["4 times", "12.5 GB/s"]),
        ("$8 / 2 = 4$ times, {glue:text}`a:.1f` ms, a 12 GB card, `3 ms`", []),
    ],
)
def test_the_rule_sees_what_it_is_for(text, found):
    assert typed(text) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_no_measured_number_on_a_page(page):
    assert typed(page.read_text(encoding="utf-8")) == [], GLUED


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.stem)
def test_no_measured_number_in_a_lab(lab):
    cells = [c.source for c in jupytext.read(lab).cells if c.cell_type == "markdown"]
    assert typed("\n\n".join(cells[1:])) == [], LEFT_OUT  # the first is the header box


@pytest.mark.parametrize("page", [*PAGES, *LABS], ids=lambda p: p.stem)
def test_faster_is_never_left_alone(page):
    """bitsandbytes#490: 8 bit is smaller, not faster. A gain names what it is over."""
    text = NOT_PROSE.sub(" ", page.read_text(encoding="utf-8"))
    for sentence in re.split(r"(?<=[.?!:|])\s", text):
        if re.search(r"\bfaster\b", sentence):
            assert re.search(r"\b(than|how|which|what|not|no|whether)\b", sentence, re.I), (
                sentence
            )
