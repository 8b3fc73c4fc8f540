"""The page "Will it fit?": its data, its form, and the table for who runs no scripts."""

import json
from html import escape
from itertools import groupby
from pathlib import Path

from gpulab_book import fresh
from gpulab_book.calculator import MOVING, Store, card_row, model_row
from gpulab_book.calculator_choices import MODE_LABELS, MODES, TERM_LABELS
from gpulab_book.calculator_rows import memory_rows, speed_rows
from gpulab_book.markup import table
from gpulab_utils.cards import CARDS, CONTEXT_BYTES
from gpulab_utils.models import MODELS
from gpulab_utils.plan import format_of, plan
from gpulab_utils.units import GIB

PAGE = "book/will_it_fit"
ROOT = Path(__file__).parents[3]
READS = ("gpulab_utils/plan", "gpulab_utils/data", "gpulab_utils/models.py",
         "gpulab_utils/cards.py", "book/_ext/gpulab_book")  # fmt: skip
LIMITS = {"context": [1, 1 << 20], "batch": [1, 1024]}
START = {"card": "rtx-3080-ti", "model": "llama-2-13b", "mode": "inference",
         "weights": "int4-g128", "context": 2048, "batch": 1, "desktop": True,
         "checkpointing": True, "free": ""}  # fmt: skip


def shipped() -> dict:
    """Everything that the page's script reads."""
    store = Store()
    models = {s.name: model_row(store, s) for s in _models()}
    formats = {
        mode: {k: [r.label, format_of(r.weights).bits] for k, r in recipes.items()}
        for mode, recipes in MODES.items()
    }
    return {
        "terms": TERM_LABELS,
        "modes": formats,
        "moving": MOVING,
        "start": START,
        "limits": LIMITS,
        "gib": GIB,
        "context_bytes": CONTEXT_BYTES,
        "cards": {card.id: card_row(card) for card in CARDS.values()},
        "models": models,
        "published": {"memory": memory_rows(), "speed": speed_rows()},
        "powers": list(store.powers),
        "polys": list(store.polys),
        "phases": list(store.phases),
    }


def _models() -> list:
    """Dense decoders and mixtures by size; an encoder writes no tokens."""
    shapes = [s for s in MODELS.values() if s.family != "bert"]
    return sorted(shapes, key=lambda s: s.params)


def data() -> str:
    """The JSON, kept in the build folder until something that it is made of changes."""
    kept = ROOT / "_build" / "will_it_fit.json"
    now = fresh.fingerprint(ROOT, READS)
    if kept.exists():
        before, text = kept.read_text(encoding="utf-8").split("\n", 1)
        if before == now:
            return text
    text = json.dumps(shipped(), separators=(",", ":")).replace("</", "<\\/")
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(f"{now}\n{text}", encoding="utf-8")
    return text


def calculator() -> str:
    """Form, places for the answer, and the data. No blank line: one block of HTML."""
    parts = [
        '<div id="fit" class="fit" hidden>',
        '<form class="fit-form" aria-label="Will it fit?">',
        _select("card", "Card", _card_options()),
        _text("free", "Free memory in GiB"),
        _select("model", "Model", _model_options()),
        _select("mode", "What you do", _options(MODE_LABELS)),
        _select("weights", "Format of the weights", ""),
        _text("context", "Context, tokens of each sequence"),
        _text("batch", "Batch, sequences at once"),
        _check("desktop", "the card also drives a desktop"),
        _check("checkpointing", "gradient checkpointing"),
        "</form>",
        '<p id="fit-verdict" role="status" aria-live="polite" aria-atomic="true"></p>',
        '<div id="fit-answer">',
        '<div id="fit-bar" class="fit-bar" role="img"></div>',
        '<ul id="fit-bill" class="fit-bill" aria-label="The bill, term by term"></ul>',
        '<p id="fit-none" class="fit-none"></p>',
        '<dl id="fit-more" class="fit-more"></dl>',
        "</div>",
        "</div>",
        "<noscript><p><strong>The calculator needs JavaScript.</strong> Without it, the "
        "table below says which models fit a 12 GB card.</p></noscript>",
        f'<script type="application/json" id="fit-data">{data()}</script>',
    ]
    return "\n".join(parts) + "\n"


def _options(words: dict[str, str]) -> str:
    return "".join(f'<option value="{k}">{escape(w)}</option>' for k, w in words.items())


def _card_options() -> str:
    """One group a maker, names in order; last, memory that the reader types."""
    made = ""
    ranked = sorted(CARDS.values(), key=lambda c: (c.vendor != "NVIDIA", c.vendor, c.name))
    for vendor, cards in groupby(ranked, key=lambda c: c.vendor):
        names = {
            c.id: c.name if c.name.endswith("GB") else f"{c.name} {c.row['box_gb']:g}GB"
            for c in cards
        }
        made += f'<optgroup label="{vendor}">{_options(names)}</optgroup>'
    return made + '<option value="free">none of these: type the free memory</option>'


def _model_options() -> str:
    return _options({s.name: f"{s.name}, {s.params / 1e9:.3g}B" for s in _models()})


def _select(name: str, words: str, options: str) -> str:
    field = f'<select id="fit-{name}" name="{name}">{options}</select>'
    return f'<p class="fit-field"><label for="fit-{name}">{words}</label>{field}</p>'


def _text(name: str, words: str) -> str:
    """Text, not a number field: a browser hides from scripts what is no number."""
    said = f'aria-describedby="fit-{name}-error"'
    field = f'<input id="fit-{name}" name="{name}" inputmode="decimal" autocomplete="off"'
    error = f'<span id="fit-{name}-error" class="fit-error"></span>'
    label = f'<label for="fit-{name}">{words}</label>'
    return f'<p class="fit-field">{label}{field} {said}>{error}</p>'


def _check(name: str, words: str) -> str:
    box = f'<input type="checkbox" id="fit-{name}" name="{name}">'
    return (
        f'<p class="fit-field fit-check">{box}<label for="fit-{name}">{words}</label></p>'
    )


def twelve_gb() -> str:
    """Models by 12 GB card's formats: spare GiB beside a desktop at the page's start."""
    names = ("bf16", "llm-int8", "int4-g128", "q2_k")
    room = CARDS[START["card"]].usable_bytes()
    head = ["model", "parameters", *(MODES["inference"][n].label for n in names)]
    rows = []
    for s in _models():
        needs = [plan(s, weights=n, seq=START["context"]).allocated for n in names]
        cells = [f"{'fits' if n <= room else 'no'}, {n / GIB:.1f}" for n in needs]
        rows.append([f"`{s.name}`", f"{s.params / 1e9:.2f}B", *cells])
    return table(head, rows, right=1)


def add_files(app, pagename, templatename, context, doctree) -> None:
    if pagename == PAGE:
        app.add_css_file("will_it_fit.css")
        for name in ("will_it_fit", "will_it_fit_words", "will_it_fit_form"):
            app.add_js_file(f"{name}.js")


def setup(app) -> None:
    app.connect("html-page-context", add_files)
