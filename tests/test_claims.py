"""The ledger, and the check that labs make of it."""

from collections import Counter

from gpulab_utils import claims, results
from gpulab_utils.claims import CLAIMS, ClaimFailed
from gpulab_utils.timing import Ratio

import numpy
import pytest
import torch
from lab_files import ROOT


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    kept = []
    monkeypatch.setattr(results, "checked", kept.append)
    return kept


def test_counts_of_the_ledger():
    assert len(CLAIMS) == 102
    stated = [c for c in CLAIMS.values() if c.stated]
    assert Counter(c.verdict for c in stated) == {
        "true": 11,
        "true with conditions": 36,
        "misleading": 29,
        "false": 17,
        "untestable": 4,
    }
    assert len(CLAIMS) - len(stated) == 5


def test_every_claim_has_one_chapter_and_a_source():
    for claim in CLAIMS.values():
        assert claim.chapter in {f"{n:02d}" for n in range(1, 20)}, claim.id
        assert claim.source, claim.id
        assert claim.tested in ("lab", "ledger only"), claim.id


def test_chapters_exist_or_the_claim_is_shown_as_not_yet():
    chapters = {p.name[:2] for p in (ROOT / "book").glob("[0-9][0-9]_*.md")}
    assert {"01", "02", "18"} <= chapters


def test_the_line_is_the_same_whatever_was_decided(capsys, entries):
    claims.check("A-1.1", True, {"ratio": Ratio(8, aa=1.0)})
    claims.check("A-1.1", None, {"ratio": Ratio(8, aa=1.5)})
    first, second = capsys.readouterr().out.splitlines()
    assert first == second == "A-1.1 (our verdict: misleading) was put to the test."
    assert [e["state"] for e in entries] == ["stands", "undecided"]
    assert entries[1]["why"] == "too noisy"


def test_a_contradicted_verdict_fails_and_is_kept(entries):
    with pytest.raises(
        ClaimFailed, match=r"A-1\.1: the verdict 'misleading' does not stand"
    ):
        claims.check("A-1.1", False, {"ratio": Ratio(1, aa=1.0)})
    assert entries[0]["evidence"] == {"ratio": {"value": 1, "aa": 1.0}}


@pytest.mark.parametrize("wrong", [1, "yes", torch.tensor(True), numpy.True_])
def test_only_a_bool_decides(wrong):
    with pytest.raises(TypeError, match=r"A-1\.1: stands must be True, False or None"):
        claims.check("A-1.1", wrong, {})


def test_an_unknown_claim_names_the_nearest():
    with pytest.raises(KeyError, match=r"A-1\.1"):
        claims.check("A-1.9", True, {})
