"""Tables and lists of the book that are written from data, never typed.

A page holds `<!-- data: cards -->`; before it is parsed the comment becomes MyST text made
by the function of that name. So a page is as old as its data, and no older.
"""

import re

from gpulab_book import calculator_page, cards_page, claims_page, evidence_pages

WRITERS = {
    "calculator": calculator_page.calculator,
    "fit-table": calculator_page.twelve_gb,
    "cards": cards_page.table,
    "card-sources": cards_page.sources,
    "claim-counts": claims_page.counts,
    "claim-states": claims_page.states,
    "claims": claims_page.ledger,
    "claims-not-stated": claims_page.not_stated,
    "labs": evidence_pages.labs,
    "recordings": evidence_pages.recordings,
    "published-memory": evidence_pages.published_memory,
    "published-speed": evidence_pages.published_speed,
    "published-perplexity": evidence_pages.published_perplexity,
    "published-files": evidence_pages.published_files,
    "published-sizes": evidence_pages.published_sizes,
}
MARK = re.compile(r"^<!-- data: ([\w-]+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """`text` with its marks replaced; `KeyError` for a mark that no function writes."""
    return MARK.sub(lambda found: WRITERS[found[1]](), text)


def read(app, docname: str, source: list[str]) -> None:
    if not docname.startswith("labs/"):
        source[0] = filled(source[0])


def setup(app) -> None:
    app.connect("source-read", read)
