"""Loaders with workers: the schedule by hand, the pictures, what a fork must survive."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from gpulab_utils import jpegs, load, plots

import pytest
import torch
from blocking import without
from torch.utils.data import DataLoader

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("loads", "step", "workers", "prefetch", "by_hand"),
    [
        ([3, 3, 3], 2, 0, 2, 15),  # 3 (3 + 2)
        ([3, 3, 3], 2, 1, 2, 11),  # ready at 3, 6, 9; the last step ends at 11
        ([3, 3, 3], 4, 1, 2, 15),  # ready in time: 3 + 3 * 4
        ([6, 6, 6, 6], 1, 2, 2, 14),  # two ready at 6, two at 12: 12 + 2 * 1
        # one batch ahead: asked for at 0, 1 and 4, ready at 1, 2 and 13
        ([1, 1, 9], 3, 1, 1, 16),
        ([1, 1, 9], 3, 1, 2, 14),  # two ahead: the third begins at 2
    ],
)
def test_total_s_by_hand(loads, step, workers, prefetch, by_hand):
    assert jpegs.total_s(loads, step, workers=workers, prefetch=prefetch) == by_hand


@pytest.mark.parametrize("load_s", [0.5, 3, 7])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("prefetch", [1, 2, 6])
def test_in_the_long_run_the_slower_of_the_two_sets_the_pace(load_s, workers, prefetch):
    took = jpegs.total_s([load_s] * 2000, 1, workers=workers, prefetch=prefetch)
    assert took / 2000 == pytest.approx(max(load_s / workers, 1), rel=0.01)


@pytest.mark.parametrize(("workers", "prefetch"), [(-1, 2), (1, 0)])
def test_total_s_refuses(workers, prefetch):
    with pytest.raises(ValueError, match=f"from 1, got {workers}, {prefetch}"):
        jpegs.total_s([1], 1, workers=workers, prefetch=prefetch)


def test_a_wait_keeps_no_core_busy():
    data, start = jpegs.Waiting([0.1] * 3, payload=5), time.process_time()
    items = [data[i] for i in range(3)]
    assert time.process_time() - start < 0.1, "a third of what was waited for"
    assert [(len(b), i, took >= 0.1) for b, i, took in items] == [
        (5, i, True) for i in range(3)
    ]


def test_pictures_are_what_pillow_decodes(tmp_path):
    from PIL import Image

    assert jpegs.make(tmp_path, 2, side=448) == sum(
        p.stat().st_size for p in tmp_path.glob("*.jpg")
    )
    data = jpegs.Pictures(tmp_path, 5)
    image, i = data[3]
    assert (image.shape, image.dtype, i, len(data)) == ((3, 224, 224), torch.uint8, 3, 5)
    with Image.open(data.files[1]) as file:
        assert file.size == (448, 448)
        expected = file.convert("RGB").resize((224, 224)).tobytes()
    assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == expected
    near = jpegs.Pictures(tmp_path, 5, draft=True)[3][0].float()
    assert 0 < (near - image).abs().mean() < 4  # of 255: another filter, the same picture
    with pytest.raises(IndexError, match="item 5 of 5"):
        data[5]


def test_the_same_pictures_each_time(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        jpegs.make(tmp_path / name, 1, side=64)
    one, two = (path.read_bytes() for path in sorted(tmp_path.rglob("*.jpg")))
    assert one == two
    assert 100_000 < jpegs.make(tmp_path, 1) < 1_000_000, "a few hundred kilobytes"


def test_no_pictures(tmp_path):
    with pytest.raises(FileNotFoundError, match="writes some"):
        jpegs.Pictures(tmp_path, 1)


def test_without_pillow_it_says_what_to_install(tmp_path):
    code = "from gpulab_utils import jpegs\ntry:\n    jpegs.make('.')\n"
    code += "except jpegs.MissingInput as missing:\n    print(missing)"
    env = without(tmp_path, "PIL") | {"GPULAB_DEVICE": "cpu"}
    said = subprocess.check_output(
        [sys.executable, "-c", code], env=env, cwd=ROOT, text=True
    )
    assert said == "JPEG files need Pillow: pip install pillow\n"
    assert issubclass(jpegs.MissingInput, load.MissingInput)


AFTER_TWO_THREADS = """
import torch
from torch.utils.data import DataLoader
from gpulab_utils import jpegs

class Sums(jpegs.Waiting):
    def __getitem__(self, i):
        return torch.ones(2**20).sum() + torch.ones(300, 300).mm(torch.ones(300, 300)).sum()

if __name__ == "__main__":
    torch.set_num_threads(2)
    big = torch.ones(2**22)
    (big + big).sum(), torch.ones(900, 900) @ torch.ones(900, 900)
    loader = DataLoader(Sums([0] * 8), 2, **jpegs.workers(2))
    print([batch.tolist() for batch in loader] == [[2**20 + 300**3] * 2] * 4)
"""


@pytest.mark.skipif(jpegs.start_method() != "fork", reason="workers are not forked here")
def test_workers_live_though_the_parent_had_two_threads(tmp_path):
    """libgomp hangs in a fork that starts threads: torch gives a worker one."""
    script = tmp_path / "after.py"
    script.write_text(AFTER_TWO_THREADS)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env=jpegs._env() | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "True\n", done.stderr


def test_options_of_a_loader_with_workers():
    kept, new = jpegs.workers(2, prefetch=5), jpegs.workers(1, keep=False)
    assert (kept["num_workers"], kept["prefetch_factor"]) == (2, 5)
    assert (kept["persistent_workers"], new["persistent_workers"]) == (True, False)
    assert len(list(DataLoader(jpegs.Waiting([0] * 4), 2, **kept))) == 2


def test_a_spawned_worker_pays_for_the_import_of_torch(tmp_path, monkeypatch):
    slow = tmp_path / "torch/utils/data/__init__.py"  # found before the real one
    slow.parent.mkdir(parents=True)
    slow.write_text("import time; time.sleep(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert 1 < jpegs.spawn_s() < 60


def test_a_script_whose_workers_would_be_spawned_has_none(monkeypatch, capsys):
    jpegs._say_so.cache_clear()
    monkeypatch.setattr(jpegs, "start_method", lambda: "spawn")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "lab.py", raising=False)
    assert jpegs.workers(4) == {"num_workers": 0}
    assert capsys.readouterr().out.startswith("0 workers: run the notebook")
    monkeypatch.delattr(sys.modules["__main__"], "__file__")  # as in a notebook
    assert jpegs.workers(4)["multiprocessing_context"] == "spawn"


def test_spawned_workers_load_the_package_s_datasets():
    how = {"num_workers": 1, "multiprocessing_context": "spawn"}
    ((_, order, _),) = DataLoader(jpegs.Waiting([0.0, 0.0]), 2, **how)
    assert order.tolist() == [0, 1]


def test_outcome_names_the_error(tmp_path):
    assert jpegs.outcome("1 + 1") == "works"
    assert jpegs.outcome("1 / 0") == "ZeroDivisionError"
    assert jpegs.outcome("import nothing_here", tmp_path / "x.py") == "ModuleNotFoundError"


JPEG = {"kind": "jpeg", "prefetch": 2, "model_per_s": 90}
ROWS = [
    {"kind": "prefetch", "workers": 0, "step_ms": 30, "took_s": 0.3, "predicted_s": 0.2},
    {"kind": "prefetch", "workers": 4, "step_ms": 30, "took_s": 0.2, "predicted_s": 0.1},
    JPEG | {"workers": 0, "batch": 2, "images_per_s": 20, "predicted_per_s": 30},
    JPEG | {"workers": 2, "batch": 2, "images_per_s": 70, "predicted_per_s": 80},
    JPEG | {"workers": 2, "batch": 2, "prefetch": 1} | {"images_per_s": 1},
    {"kind": "batching", "rows": 1, "took_s": 0.004},
    {"kind": "batching", "rows": 8, "took_s": 0.008},
    {"kind": "start", "what": "no worker", "took_s": 0.002},
]


@pytest.mark.parametrize(
    ("draw", "lines"),
    [
        ("epoch_by_workers", [([0, 4], [300, 200]), ([0, 4], [200, 100])]),
        ("images_by_workers", [([0, 2], [20, 70]), ([0, 2], [30, 80])]),
        ("time_by_batch", [([1, 8], [4, 8]), ([1, 8], [4, 1])]),
        ("time_by_start", [([2], ["no worker"])]),
    ],
)
def test_a_figure_stands_where_its_rows_say(draw, lines):
    (ax,) = getattr(plots, draw)([SimpleNamespace(label="a CPU", rows=ROWS)]).axes
    seen = [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines]
    assert seen[: len(lines)] == lines
    with pytest.raises(ValueError, match="to draw"):
        getattr(plots, draw)([SimpleNamespace(label="a CPU", rows=[])])
