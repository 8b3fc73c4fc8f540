"""Contracts that every lab keeps. Labs are found by name: nothing is registered."""

import ast
import re

from gpulab_utils import results
from gpulab_utils.claims import CLAIMS
from gpulab_utils.units import GIB

import jupytext
import pytest
from lab_files import LABS, ROOT, checks, code_cells, ignored, is_claim_check, names

STEPS = ["Predict", "Run", "See", "Explain"]
ROWS = ["You will", "Before", "Minutes", "CPU", "GPU", "Theory"]
# Differs between machines or runs, as does what is made of it.
VARIES = {
    "pick",
    "probes",
    "device",
    "bench",
    "compare",
    "results",
    "memory",
    "rand",
    "randn",
    "randint",
}
NOT_HERE = (
    r"\.device\.type|\bis_cuda\b|torch\.cuda\.is_available|is_bf16_supported|time\.time"
)


@pytest.fixture(params=LABS, ids=lambda path: path.stem)
def lab(request):
    return request.param


@pytest.fixture
def cells(lab):
    return jupytext.read(lab.with_suffix(".ipynb")).cells


@pytest.fixture
def text(lab):
    return lab.read_text(encoding="utf-8")


@pytest.fixture
def header(cells):
    rows = re.findall(r"(?m)^\| (.+?) \| (.+?) \|$", cells[0].source)
    return {left: right for left, right in rows if left != "---"}


def test_there_are_labs():
    assert LABS


def test_pair_agrees(lab, cells):
    source = [(c.source, c.metadata) for c in jupytext.read(lab).cells]
    assert source == [(c.source, c.metadata) for c in cells], f"make lab NAME={lab.stem}"


def test_set_up_cell_is_the_template_s(text):
    template = (ROOT / "labs" / "_template.py").read_text(encoding="utf-8")
    assert code_cells(text)[0] == code_cells(template)[0]


def test_set_up_cell_has_the_repository_address(text):
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    address = re.search(r'(?m)^\s*(?:url|repository_url): *"?([^"\s#]*)', config)
    stated = re.search(r'REPOSITORY = "(.*?)"', text).group(1)
    assert stated == (address.group(1) if address else "")


def test_steps_in_order(cells):
    prose = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    *experiments, last = re.split(r"(?m)^## ", prose)[1:]
    assert last.startswith("Your turn\n")
    assert 1 <= len(experiments) <= 4
    for experiment in experiments:
        assert experiment.splitlines()[0].endswith("?"), experiment
        assert re.findall(r"(?m)^### (.*)", experiment) == STEPS, experiment
    assert "**Takeaway:**" in last


def test_an_experiment_has_at_most_twelve_cells(cells):
    counts, heading = {}, None
    for cell in cells:
        start = re.match(r"## (.*)", cell.source) if cell.cell_type == "markdown" else None
        heading = start.group(1) if start else heading
        counts[heading] = counts.get(heading, 0) + (cell.cell_type == "code")
    counts.pop(None, 0), counts.pop("Your turn", 0)
    assert max(counts.values()) <= 12, counts


def test_header_has_the_fixed_rows(lab, header):
    assert list(header) == ROWS
    assert header["You will"].count("**") >= 4, "two verbs, bold"
    assert f"(../book/{lab.stem}.md)" in header["Theory"]
    assert re.fullmatch(
        r"\d+ to read, [\d.]+ to run(, [\d.]+ to record)?", header["Minutes"]
    )


def test_header_agrees_with_the_recordings(lab, header):
    minutes = re.findall(r"([\d.]+) to (?:run|record)", header["Minutes"])
    run_s = 60 * float(minutes[-1])  # a recording takes more where it repeats trainings
    ram, vram = (_gib(header[row]) for row in ("CPU", "GPU"))
    for run in results.load(lab.stem):
        told = run.where
        assert told["wall_s"] <= run_s, told["device"]
        if told["peak_vram_bytes"] is None:
            assert told["peak_rss_bytes"] <= ram * GIB, told["device"]
        else:
            assert told["peak_vram_bytes"] <= vram * GIB, told["device"]


def _gib(row: str) -> float:
    return float(re.match(r"([\d.]+) GiB", row).group(1))


def test_what_varies_is_not_compared(cells):
    varies = VARIES | {f".{name}" for name in VARIES}
    for cell in (c for c in cells if c.cell_type == "code"):
        read, made = names(cell.source)
        imports = (
            all(
                isinstance(n, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr)
                for n in ast.parse(cell.source).body
            )
            and "import " in cell.source
        )
        assert ignored(cell) or imports or not read & varies, (
            f"{read & varies} in {cell.source}"
        )
        varies = varies | made if ignored(cell) else varies - made


def test_five_cells_are_compared(cells):
    compared = [c for c in cells if c.cell_type == "code" and c.outputs and not ignored(c)]
    assert len(compared) >= 5, f"untagged cells that print: {[c.source for c in compared]}"


def test_outputs_are_stored_clean(cells):
    for cell in (c for c in cells if c.cell_type == "code"):
        assert cell.execution_count, "make lab runs every cell"
        kinds = {o.get("name", o.output_type) for o in cell.outputs}
        assert not kinds & {"stderr", "error"}, cell.source


def test_a_cell_that_draws_has_its_figure(cells):
    """An interactive mode switched off in a helper once emptied all but the first."""
    for cell in (c for c in cells if c.metadata.get("mystnb", {}).get("image")):
        assert any("image/png" in o.get("data", {}) for o in cell.outputs), cell.source


def test_every_figure_has_alt_text(cells):
    for cell in (c for c in cells if c.cell_type == "code"):
        if any("image/png" in o.get("data", {}) for o in cell.outputs):
            assert len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) > 20


def test_no_lab_asks_torch_what_machine_this_is(text):
    assert not re.search(NOT_HERE, text)
    assert "standin" not in text
    assert "no cover" not in text


def test_is_in_the_table_of_contents(lab):
    assert f"labs/{lab.stem}\n" in (ROOT / "_toc.yml").read_text(encoding="utf-8")


def test_claims_of_the_chapter_are_checked_once(lab, text):
    owned = {
        c.id for c in CLAIMS.values() if c.chapter == lab.stem[:2] and c.tested == "lab"
    }
    checked = re.findall(r'claims\.check\(\s*"([^"]+)"', text)
    assert sorted(checked) == sorted(owned)


def test_a_claim_rests_on_evidence(text):
    for source in code_cells(text):
        for node in filter(is_claim_check, ast.walk(ast.parse(source))):
            decided = node.args[1]
            assert not isinstance(decided, ast.Constant), ast.unparse(node)
            assert (
                len([n for n in ast.walk(decided) if getattr(n, "attr", "") == "lies_in"])
                <= 1
            )
            assert any(isinstance(n, ast.Name) for n in ast.walk(decided)), ast.unparse(
                node
            )


def test_the_recordings_have_judged(lab, text):
    """On a CPU nine checks in ten decided, those that need a GPU left out."""
    for run in (r for r in results.load(lab.stem) if r.where["peak_vram_bytes"] is None):
        asked = [c for c in run.checks if c["why"] != "needs a GPU"]
        judged = [c for c in asked if c["state"] != "undecided"]
        assert len(judged) >= 0.9 * len(asked), [c for c in asked if c not in judged]
        assert {c["claim"] for c in run.checks} == set(
            re.findall(r'claims\.check\(\s*"([^"]+)"', text)
        ), run.where["device"]


def test_every_check_has_a_fault(lab, text):
    from test_faults import faults

    expected = [want for _, _, want in faults(lab.stem)]
    for check in checks(text):
        flat = "".join(check.split())
        assert any("".join(want.split()) in flat for want in expected), (
            f"tests/faults/{lab.stem}.py lacks a fault that makes this fail: {check}"
        )
