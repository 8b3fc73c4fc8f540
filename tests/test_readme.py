"""The README's figure shows the recordings that are there."""

import re

from gpulab_utils.plots import readme

from lab_files import LABS, ROOT
from PIL import Image

FIGURE = ROOT / "book" / "_static" / "readme.png"


def test_the_figure_is_of_these_recordings():
    assert Image.open(FIGURE).text["Inputs"] == readme.inputs(), (
        f"make lab NAME={readme.LAB}"
    )


def test_the_readme_shows_it():
    assert "](book/_static/readme.png)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_table_lists_every_lab_with_the_question_of_its_chapter():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[(\d\d)\]\(labs/(.+?)\.ipynb\) \| (.+?) \|$", text)
    assert [slug for _, slug, _ in rows] == [lab.stem for lab in LABS]
    for number, slug, question in rows:
        page = (ROOT / "book" / f"{slug}.md").read_text(encoding="utf-8")
        title = re.search(r"(?m)^# (.+)$", page).group(1)
        assert (number, question) == (slug[:2], title)
