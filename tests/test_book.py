"""The book: complete, offline, linked; and a build command that fails when it should."""

import re
import shutil
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from gpulab_book import fresh, lab_box, recorded, wheel

import jupytext
import pytest
import yaml

ROOT = Path(__file__).parent.parent
OUTSIDE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page loads, where its links lead, which names it has, what its images say."""

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.loads, self.links, self.ids = path, [], [], set()
        self.images, self.styles, self._in_style = [], [], False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self._in_style = tag == "style"
        self.ids.add(attrs.get("id"))
        self.styles.append(attrs.get("style") or "")
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "img":
            self.images.append((attrs.get("src"), attrs.get("alt")))
        if attrs.get(LOADS.get(tag)):
            self.loads.append(attrs[LOADS[tag]])

    def handle_data(self, data):
        if self._in_style:
            self.styles.append(data)

    def handle_endtag(self, tag):
        self._in_style = False


@pytest.fixture(scope="module")
def pages(html):
    found = [Page(p) for p in sorted(html.rglob("*.html")) if "_static" not in p.parts]
    return {page.path: page for page in found}


def test_every_page_of_the_contents_is_there(html):
    pages = recorded.contents()
    missing = [p for p in pages if not (html / f"{p}.html").exists()]
    assert pages[0] == "book/intro"
    assert not missing


def test_every_source_is_in_the_contents():
    sources = [*ROOT.glob("book/*.md"), *ROOT.glob("labs/[0-9][0-9]_*.ipynb")]
    names = {p.relative_to(ROOT).with_suffix("").as_posix() for p in sources}
    assert names - {"book/README"} == set(recorded.contents())


def test_no_page_asks_the_network(pages):
    for path, page in pages.items():
        outside = [u for u in page.loads if OUTSIDE.match(u)]
        outside += re.findall(
            r"(?:url\(|@import)\W*(?:[a-z]+:)?//\S+", " ".join(page.styles)
        )
        assert not outside, f"{path}: {outside}"


def test_no_stylesheet_asks_the_network(html):
    for path in html.rglob("*.css"):
        text = path.read_text(encoding="utf-8", errors="replace")
        asked = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", text)
        assert not asked, f"{path}: {asked}"


def test_every_relative_link_resolves(pages):
    for path, page in pages.items():
        for link in filter(
            lambda u: not re.match(r"[a-z]+:|//", u), page.links + page.loads
        ):
            target, _, name = unquote(link).partition("#")
            file = (path.parent / target.split("?")[0]).resolve() if target else path
            assert file.exists(), f"{path}: {link}"
            if name and file in pages:
                assert name in pages[file].ids, f"{path}: no {name} in {file.name}"


def test_every_figure_has_alt_text(pages):
    for path, page in pages.items():
        for src, alt in page.images:
            assert alt, f"{path}: {src} has no alt text"
            assert not re.search(r"\.(png|svg|jpe?g)$", alt), f"{path}: {alt}"


def test_labs_alone_can_be_taken_away(html, pages):
    for path, page in pages.items():
        links, lab = " ".join(page.links), lab_box.LAB.match(_name(html, path))
        colab = lab_box.COLAB in links
        assert colab == bool(lab and _repository()), path
        assert (".whl" in links) == bool(lab), path
        for link in filter(lambda u: u.endswith(".ipynb") and lab, page.links):
            jupytext.read((path.parent / link).resolve())


def _name(html: Path, path: Path) -> str:
    return path.relative_to(html).with_suffix("").as_posix()


def _repository() -> str:
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]


def test_no_page_names_another_books_repository(pages):
    for path, page in pages.items():
        assert not [u for u in page.links if "executablebooks/jupyter-book" in u], path


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("", None),
        ("https://github.com/me/book", f"{lab_box.COLAB}me/book/blob/main/labs/x.ipynb"),
        (
            "https://github.com/me/book.git",
            f"{lab_box.COLAB}me/book/blob/main/labs/x.ipynb",
        ),
    ],
)
def test_colab_opens_the_notebook(address, url):
    assert lab_box.colab_url(address, "main", "labs/x.ipynb") == url


def test_colab_refuses_another_host():
    with pytest.raises(
        ValueError, match=r"must name GitHub, got 'https://example\.org/me'"
    ):
        lab_box.colab_url("https://example.org/me", "main", "labs/x.ipynb")


def test_wheel_holds_package_data_and_results(html):
    held = set(zipfile.ZipFile(html / wheel.name()).namelist())
    package = [p for p in (ROOT / "gpulab_utils").rglob("*") if p.is_file()]
    package = [p for p in package if "__pycache__" not in p.parts]
    results = ROOT.glob("results/*/*.json")
    wanted = {p.relative_to(ROOT).as_posix() for p in package}
    wanted |= {f"gpulab_utils/data/{p.relative_to(ROOT).as_posix()}" for p in results}
    assert not wanted - held


def test_wheel_works_without_the_checkout(html, tmp_path):
    """As on Colab: the package and its recordings, and nothing else of this folder."""
    zipfile.ZipFile(html / wheel.name()).extractall(tmp_path)
    code = "from gpulab_utils import results, CARDS; print(results.folder(), len(CARDS))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    folder, cards = done.stdout.split()
    assert Path(folder) == tmp_path / "gpulab_utils" / "data" / "results", done.stderr
    assert int(cards) >= 70
    assert Path(folder).is_dir() == any(ROOT.glob("results/*/*.json"))


# ---- the build command, on small books -----------------------------------------------

ADDRESS = "https://github.com/me/book"
GOOD = "# A page\n\nText with $a^2$.\n"
CODE = """---
file_format: mystnb
---
# A page

```{{code-cell}}
{}
```
"""


@pytest.fixture
def book(tmp_path):
    """A book of one page, with this book's settings and extensions."""
    for name in ("_config.yml", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "LICENSE").touch()
    shutil.copytree(ROOT / "book" / "_ext", tmp_path / "book" / "_ext")
    shutil.copytree(ROOT / "book" / "_templates", tmp_path / "book" / "_templates")
    (tmp_path / "book" / "references.bib").touch()
    (tmp_path / "book" / "_static").mkdir()
    for name in ("gpulab.css", "gpulab.js"):
        (tmp_path / "book" / "_static" / name).touch()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/intro\n")
    (tmp_path / "book" / "intro.md").write_text(GOOD)
    (tmp_path / "requirements.txt").touch()
    for folder in ("gpulab_utils/data", "results"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def page_text(book: Path) -> str:
    return (book / "_build" / "html" / "book" / "intro.html").read_text()


def test_a_sound_book_builds(book, build_book):
    assert build_book(book).returncode == 0
    assert "A page" in page_text(book)


BROKEN = {
    "a cell that raises": CODE.format("1 / 0"),
    "a link that leads nowhere": GOOD + "\n[there](nowhere.md)\n",
    "a heading level left out": GOOD + "\n#### Deep\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_page_fails_the_build_twice(book, build_book, what):
    (book / "book" / "intro.md").write_text(BROKEN[what])
    assert build_book(book).returncode != 0, what
    assert build_book(book).returncode != 0, f"{what}, and nothing changed since"


def test_with_an_address_labs_and_only_labs_open_in_colab(book, build_book):
    config = (book / "_config.yml").read_text().replace('url: ""', f"url: {ADDRESS}")
    (book / "_config.yml").write_text(config)
    (book / "labs").mkdir()
    notebook = jupytext.reads("# %% [markdown]\n# # A lab\n", "py:percent")
    jupytext.write(notebook, book / "labs" / "01_a_lab.ipynb")
    with (book / "_toc.yml").open("a") as toc:
        toc.write("chapters:\n- file: labs/01_a_lab\n")
    (book / "book" / "intro.md").write_text(CODE.format("1 + 1"))
    done = build_book(book)
    assert done.returncode == 0, done.stderr
    pages = [Page(p) for p in sorted((book / "_build" / "html").glob("[bl]*/*.html"))]
    intro, lab = ([u for u in page.links if "://" in u] for page in pages)
    assert intro == []
    assert lab == [f"{lab_box.COLAB}me/book/blob/main/labs/01_a_lab.ipynb"]


def test_a_missing_page_fails_the_build(book, build_book):
    with (book / "_toc.yml").open("a") as toc:
        toc.write("chapters:\n- file: book/gone\n")
    assert build_book(book).returncode != 0


def test_pages_follow_the_data(book, build_book):
    """A value of the package or a recording changes: so does the page, and only then."""
    value, seen = book / "results" / "value.txt", book / "executed"
    code = (
        f"open({str(seen)!r}, 'a').write('x'); print('read', open({str(value)!r}).read())"
    )
    (book / "book" / "intro.md").write_text(CODE.format(code))
    for text, runs in (("one", 1), ("two", 2), ("two", 2)):
        value.write_text(text)
        assert build_book(book).returncode == 0
        assert f"read {text}" in page_text(book)
        assert len(seen.read_text()) == runs


def test_fingerprint_sees_names_and_bytes(tmp_path):
    (tmp_path / "results").mkdir()
    seen = [fresh.fingerprint(tmp_path, ("results",))]
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        (tmp_path / "results" / name).write_text(text)
        seen.append(fresh.fingerprint(tmp_path, ("results",)))
    assert len(set(seen)) == 4
