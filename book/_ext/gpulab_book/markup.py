"""MyST text from values: escaped words, tables, links."""

import re
from collections.abc import Iterable

URL = re.compile(r"https?://[^\s,;()<>\"]+[^\s,;()<>\".]")


def plain(text: str) -> str:
    r"""Words as they are: nothing in them is markup, and addresses become links.

    >>> plain("2_x < 3|4 at https://example.org/a_b.")
    '2\\_x \\< 3\\|4 at <https://example.org/a_b>.'
    """
    made, at = [], 0
    for found in URL.finditer(text):
        made += [_escaped(text[at : found.start()]), f"<{found[0]}>"]
        at = found.end()
    return "".join([*made, _escaped(text[at:])])


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>$#|~^])", r"\\\1", text)


def zh(text: str, *, quoted: bool = True) -> str:
    """Chinese, marked as such for fonts and screen readers; in quotation marks if `quoted`.

    >>> zh("显卡", quoted=False)
    '<span lang="zh-Hans">显卡</span>'
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    tag = "q" if quoted else "span"
    return f'<{tag} lang="zh-Hans">{escaped}</{tag}>'


def table(head: Iterable[str], rows: Iterable[Iterable[object]], right: int = 99) -> str:
    """A table; columns from number `right` on hold numbers and are set to the right."""
    head = list(head)
    rule = ["---:" if i >= right else "---" for i in range(len(head))]
    lines = [head, rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def listed(words: Iterable[object]) -> str:
    """Each once, in order of appearance, with commas."""
    return ", ".join(dict.fromkeys(str(w) for w in words if w))
