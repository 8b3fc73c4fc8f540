"""The articles' programs as printed, how each ends, and the repair step by step."""

import itertools
import re

from gpulab_utils import device, load, programs
from gpulab_utils.programs import child

import pytest
import torch

#: How each program ends on a CPU, as printed and after each edit: error and line.
CPU = {
    "a": [
        *[("NameError", 6), ("CUDA", 22), ("NameError", 30), ("NameError", 32)],
        *[("CUDA", 38), (None, None)],
    ],
    "b": [("NameError", 34), (None, None)],
    "c": [
        *[("IndentationError", 16), ("ValueError", 21), ("TypeError", 30)],
        *[("NameError", 60), (None, None)],
    ],
}


@pytest.fixture(scope="module")
def ends() -> dict:
    """All steps of all programs, from one runner: torch is imported once."""
    names = [(name, i) for name in "abc" for i in range(len(programs.steps(name)))]
    sources = [programs.steps(name, every=100)[i].source for name, i in names]
    return dict(zip(names, programs.run_each(sources), strict=True))


def test_the_texts_have_the_lines_of_the_articles():
    lengths = [len(programs.text(name).splitlines()) for name in "abc"]
    assert lengths == [26, 53, 54]
    assert programs.text("b").endswith("print('Finished Training')\n")


def test_none_of_the_techniques_is_in_them():
    words = (
        "autocast GradScaler pin_memory non_blocking num_workers checkpoint compile half"
    )
    for name in "abc":
        for word in [*words.split(), "prune", "quant", "distill", "channels_last"]:
            assert word not in programs.text(name), f"{word} in program {name}"


@pytest.mark.parametrize("name", "abc")
def test_each_step_is_one_edit(name):
    """Lines that an edit takes away and adds lie next to each other."""
    made = programs.steps(name)
    for before, after in itertools.pairwise(made):
        a, b = before.source.splitlines(), after.source.splitlines()
        kept = common(a, b) + common(a[::-1], b[::-1])
        assert len(a) - kept <= 1, f"{after.why}: more than a line was replaced"


def common(a: list, b: list) -> int:
    """How many first lines are the same."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b))))  # noqa: B905


@pytest.mark.skipif(device.here().is_gpu, reason="the ladder of a machine without a GPU")
@pytest.mark.parametrize(("name", "i"), [(n, i) for n in "abc" for i in range(len(CPU[n]))])
def test_how_each_step_ends(ends, name, i):
    end, (error, line) = ends[name, i], CPU[name][i]
    if error == "CUDA":
        assert end.error in ("AssertionError", "RuntimeError")
        assert re.search("CUDA|NVIDIA", end.message)
    else:
        assert end.error == error
    assert end.line == line
    assert len(CPU[name]) == len(programs.steps(name))


def test_only_program_c_prints_a_number(ends):
    printed = {name: ends[name, len(CPU[name]) - 1].printed for name in "abc"}
    assert printed["a"] == ""
    assert printed["b"] == "Finished Training\n", "2000 batches were never reached"
    assert re.fullmatch(r"Test accuracy: 0\.\d+\n", printed["c"])


def test_programs_b_and_c_use_no_gpu_wherever_they_run(ends):
    for name in "bc":
        end = ends[name, len(CPU[name]) - 1]
        assert (end.devices, end.gpu_bytes) == (("cpu",), 0)


def test_late_and_killed_programs_are_told_of():
    killed = "import os\nos.kill(os.getpid(), 11)"
    late, dead, left, deep = programs.run_each(
        ["print(1)\nwhile True: pass", killed, "raise SystemExit(3)", "int('x')"], 0.3
    )
    assert (late.error, late.printed, late.line) == ("TimeLimit", "1\n", None)
    assert dead.error == "SIGSEGV"
    assert left.error == "SystemExit"
    assert str(deep).startswith("ValueError, line 1: invalid literal")


def test_the_last_line_of_the_program_is_to_blame_not_that_of_a_library():
    end = child.end_of("import json\n\njson.loads('')\n")
    assert (end["error"], end["line"]) == ("JSONDecodeError", 3)


def test_the_printed_functions_work_on_digits():
    """`train` learns one batch by heart; `inference` counts over items, not batches."""
    images, labels, test_images, test_labels = load.digits()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    optimizer, criterion = torch.optim.Adam(model.parameters()), torch.nn.CrossEntropyLoss()
    batch = [(images[::125], labels[::125])]  # 32 images
    before = criterion(model(batch[0][0]), batch[0][1]).item()
    programs.function("c", "train")(model, batch, criterion, optimizer, 200)
    assert criterion(model(batch[0][0]), batch[0][1]).item() < 0.1 * before
    uneven = zip(test_images.split(64), test_labels.split(64), strict=True)
    share = programs.function("c", "inference")(model, uneven)
    assert share == (model(test_images).argmax(1) == test_labels).sum().item() / 1000
    assert not model.training, "it leaves the model in eval mode"


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="got 'd'"):
        programs.text("d")
    with pytest.raises(ValueError, match="every must be 1 or more, got 0"):
        programs.steps("a", every=0)
    with pytest.raises(ValueError, match="no function 'evaluate'"):
        programs.function("c", "evaluate")
    with pytest.raises(ValueError, match="limit_s must be positive, got 0"):
        programs.run("1", 0)


def test_a_repair_that_finds_no_place_says_so(monkeypatch):
    edit = {"why": "nothing", "old": "no such line", "new": ""}
    monkeypatch.setattr(programs, "_repairs", lambda: {"a": [edit]})
    with pytest.raises(ValueError, match="nothing: 'no such line' does not stand there"):
        programs.steps("a")
