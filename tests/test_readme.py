"""The README's figure shows the recordings that are there."""

from gpulab_utils.plots import readme

from lab_files import ROOT
from PIL import Image

FIGURE = ROOT / "book" / "_static" / "readme.png"


def test_the_figure_is_of_these_recordings():
    assert Image.open(FIGURE).text["Inputs"] == readme.inputs(), (
        f"make lab NAME={readme.LAB}"
    )


def test_the_readme_shows_it():
    assert "](book/_static/readme.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
