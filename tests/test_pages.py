"""Pages that are written from data: every row is there, and each state is the right one."""

import doctest
import re
from importlib import import_module
from pathlib import Path

from gpulab_book import cards_page, claims_page, data_pages, recorded
from gpulab_utils import CARDS
from gpulab_utils.claims import CLAIMS

import pytest

ROOT = Path(__file__).parent.parent
LAB_CLAIM = next(c for c in CLAIMS.values() if c.tested == "lab")
CITED = next(c for c in CLAIMS.values() if c.tested != "lab")


def check(state: str, why: str = "", claim: str = LAB_CLAIM.id) -> dict:
    return {"claim": claim, "state": state, "why": why}


@pytest.mark.parametrize(
    ("checks", "word", "detail"),
    [
        ([], "not yet", ""),
        ([("a CPU", check("stands", claim="another"))], "not yet", ""),
        ([("a CPU", check("stands"))], "tested", "stands on a CPU"),
        ([("a CPU", check("undecided", "too noisy"))], "not yet", "too noisy (a CPU)"),
        (
            [("a CPU", check("undecided", "needs a GPU"))],
            "needs a GPU",
            "needs a GPU (a CPU)",
        ),
        (
            [("a CPU", check("undecided", "needs a GPU")), ("a card", check("stands"))],
            "tested",
            "stands on a card",
        ),
    ],
)
def test_state_of_a_claim(checks, word, detail):
    assert claims_page.state(LAB_CLAIM, checks) == claims_page.State(word, detail)


def test_only_what_an_article_says_stands_in_quotation_marks():
    assert '<q lang="zh-Hans">' not in claims_page.not_stated()
    assert claims_page.not_stated().count('<span lang="zh-Hans">') == 5
    assert claims_page.ledger().count('<q lang="zh-Hans">') == 97


def test_each_published_file_is_described():
    folder = ROOT / "gpulab_utils/data/published"
    told = set(re.findall(r"(?m)^\| `(.+?)` \|", (folder / "README.md").read_text()))
    assert told == {p.name for p in folder.glob("*.json*")}


def test_a_cited_claim_has_no_check():
    assert claims_page.state(CITED, []).word == "cited"


def test_verdicts_are_counted_without_what_is_not_stated():
    rows = re.findall(r"(?m)^\| ([a-z ]+) \|.* (\d+) \|$", claims_page.counts())
    assert {verdict: int(n) for verdict, n in rows} == {
        "true": 11,
        "true with conditions": 36,
        "misleading": 29,
        "false": 17,
        "untestable": 4,
        "all": 97,
    }


def test_states_add_up_to_the_ledger():
    rows = re.findall(r"(?m)^\| .* \| (\d+) \|$", claims_page.states())
    assert sum(map(int, rows)) == len(CLAIMS) == 102


def test_every_claim_stands_on_the_page_once():
    text = claims_page.ledger() + claims_page.not_stated()
    shown = re.findall(r"(?m)^\*\*([ABC]-[\w.]+)\*\*", text)
    assert sorted(shown) == sorted(CLAIMS)
    left_out = re.findall(r"(?m)^\*\*([ABC]-[\w.]+)\*\*", claims_page.not_stated())
    assert left_out == [c.id for c in CLAIMS.values() if not c.stated]


def test_every_card_stands_in_the_table_once():
    table, sources = cards_page.table(), cards_page.sources()
    for card in CARDS.values():
        assert table.count(f"| {card.name} |") == 1
        assert f"`{card.id}`" in sources
        assert card.row["sources"], f"{card.id} has no source"


def test_the_card_of_the_articles_reads_912():
    """384 bit x 19 Gbit/s / 8 = 912 GB/s; 12 GiB x 0.98 - 0.45 = 11.31, - 0.45 = 10.86."""
    row = re.search(r"(?m)^\| GeForce RTX 3080 Ti \|.*$", cards_page.table())[0]
    assert "| 12 | 11.31 / 10.86 | 912 |" in row


def test_every_mark_on_a_page_has_a_writer_and_the_other_way_round():
    text = "\n".join(p.read_text(encoding="utf-8") for p in ROOT.glob("book/*.md"))
    assert set(data_pages.MARK.findall(text)) == set(data_pages.WRITERS)
    with pytest.raises(KeyError, match="nothing"):
        data_pages.filled("<!-- data: nothing -->")


def test_labs_of_the_book_have_faults_and_compared_cells():
    for lab in recorded.labs():
        assert recorded.compared_cells(lab) >= 5
        assert recorded.faults(lab) >= 1


@pytest.mark.parametrize("name", ["lab_box", "markup"])
def test_examples(name):
    found = doctest.testmod(import_module(f"gpulab_book.{name}"))
    assert found.attempted
    assert not found.failed
