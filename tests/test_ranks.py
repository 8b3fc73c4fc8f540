"""Launched ranks tell what they found, end in time, and leave nothing behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gpulab_utils import fit, plots, ranks, results
from gpulab_utils.process import below
from gpulab_utils.workers import all_reduce, ddp_steps

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="process ids of POSIX")

#: Without torch: a rank's name, threads, interface; and a child of its own.
TELLS = """
import os
from gpulab_utils.workers import tell
names = ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "GPULAB_DEVICE")
names += ("CUDA_VISIBLE_DEVICES",)
tell({name: os.environ.get(name) for name in (*names, "MASTER_ADDR")})
"""
HANGS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
folder = pathlib.Path(__file__).parent
(folder / os.environ["RANK"]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""
FAILS = """
import os
from gpulab_utils.workers import tell
if os.environ["RANK"] == "1":
    raise ValueError("one rank has had enough")
tell({})
"""
LAUNCHES = """
import sys
from gpulab_utils import ranks
print(ranks.start(sys.argv[1], ranks=2, limit_s=300).process.pid, flush=True)
input()
"""
JOINS = """
import os, pathlib, time
from gpulab_utils import workers
with workers.joined():
    (pathlib.Path(__file__).parent / os.environ["RANK"]).write_text(str(os.getpid()))
    time.sleep(600)
"""
OUTLIVES = """
import time
from gpulab_utils import workers
workers.GRACE_S = 0
with workers.joined():
    time.sleep(600)
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "rank.py"
    path.write_text(text)
    return path


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be collected does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def gone(pids: list[int], within_s: float = 5) -> bool:
    end = time.monotonic() + within_s
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_each_rank_tells_and_sees_the_loopback_alone(tmp_path):
    told = ranks.launch(script(tmp_path, TELLS), ranks=2, threads=3, limit_s=90)
    assert [one["RANK"] for one in told] == ["0", "1"]
    assert {one["WORLD_SIZE"] for one in told} == {"2"}
    assert {one["OMP_NUM_THREADS"] for one in told} == {"3"}
    assert {one["MASTER_ADDR"] for one in told} == {"127.0.0.1"}
    assert {one["GLOO_SOCKET_IFNAME"][:2] for one in told} == {"lo"}
    assert {one["GPULAB_DEVICE"] for one in told} == {"cpu"}, "a card each is not here"
    assert {one["CUDA_VISIBLE_DEVICES"] for one in told} == {""}, "nor does torch see one"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="asks /proc who runs")
def test_a_hung_rank_is_ended_at_the_limit_and_no_process_is_left(tmp_path):
    started = time.monotonic()
    running = ranks.start(script(tmp_path, HANGS), ranks=2, limit_s=20)
    with pytest.raises(ranks.RankLate, match=r"2 ranks were still running after 20 s"):
        running.wait()
    assert 20 <= time.monotonic() - started < 30
    told = [(tmp_path / str(rank)).read_text().split() for rank in range(2)]
    pids = [int(pid) for pair in told for pid in pair]
    assert len(set(pids)) == 4, "two ranks and a child of each"
    assert gone([running.process.pid, *pids])
    assert not running.folder.exists()
    assert running.process.pid not in below(os.getpid())


def test_a_failing_rank_shows_its_error_and_who_had_told(tmp_path):
    with pytest.raises(ranks.RankFailed, match="one rank has had enough"):
        ranks.launch(script(tmp_path, FAILS), ranks=2, limit_s=90)


def test_a_rank_whose_launcher_never_ends_it_ends_itself(tmp_path):
    """The launcher killed, say: the alarm of `joined` is all that is left."""
    running = ranks.start(script(tmp_path, OUTLIVES), ranks=1, limit_s=5)
    running._end += 60  # the launcher sleeps over it
    with pytest.raises(ranks.RankFailed, match="SIGALRM"):
        running.wait()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="asks /proc who runs")
def test_ranks_end_with_the_process_that_launched_them(tmp_path):
    """A notebook's kernel, say, is killed: nobody is left to keep the time limit."""
    command = [sys.executable, "-c", LAUNCHES, str(script(tmp_path, JOINS))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=env, **pipes) as notebook:
        launcher = int(notebook.stdout.readline())
        files, end = [tmp_path / "0", tmp_path / "1"], time.monotonic() + 90
        while not all(f.exists() and f.read_text() for f in files):
            assert time.monotonic() < end, "no rank joined"
            time.sleep(0.1)
        pids = [launcher, *(int(f.read_text()) for f in files)]
        assert all(map(alive, pids))
        notebook.kill()
    assert gone(pids, within_s=30)


def test_sums_and_bytes_on_the_wire():
    ask = {"sizes": [2**12, 2**18, 2**22], "rounds": 3}
    told = ranks.launch("all_reduce", ask, ranks=2, limit_s=90)
    assert [one["sums"] for one in told] == [[3.0], [3.0]]  # 1 + 2
    assert [len(seconds) for seconds in told[0]["seconds"].values()] == [3, 3, 3]
    if told[0]["wire"] is not None:  # 2 ranks x 2 (2 - 1) / 2 x 4 MiB, and headers
        assert 1 <= told[0]["wire"] / 2**23 < 1.3
    slowest = [
        min(ranks.slowest([one["seconds"][n] for one in told])) for n in told[0]["seconds"]
    ]
    assert fit.line(ask["sizes"], slowest).bytes_per_s > 1e6


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"script": "no_such"}, FileNotFoundError, "all_reduce, ddp_steps"),
        ({"script": "all_reduce", "ranks": 0}, ValueError, "got 0 and 60"),
        ({"script": "all_reduce", "limit_s": 0}, ValueError, "got 2 and 0"),
    ],
)
def test_what_is_refused(how, error, says):
    with pytest.raises(error, match=says):
        ranks.start(**how)


@pytest.mark.parametrize(
    ("sent", "told"), [((900, 500, 505), 500), ((900, 500, 520), None)]
)
def test_a_loopback_that_others_use_too_is_not_judged(monkeypatch, sent, told):
    counter = [at for n in sent for at in (0, n)]
    monkeypatch.setattr(all_reduce, "sent_bytes", lambda: counter.pop(0))
    monkeypatch.setattr(all_reduce, "meet", lambda place: None)
    monkeypatch.setattr(all_reduce.dist, "get_backend", lambda: "gloo")
    counter.insert(0, 0)  # asked once whether anybody counts
    assert all_reduce.on_loopback(lambda: None, tries=len(sent)) == told
    assert not counter


def test_a_clock_that_stops_before_the_sum_is_there_is_refused(monkeypatch):
    with ranks.alone() as place:
        assert all_reduce.seconds(2**12, place) > 0
        monkeypatch.setattr(all_reduce.dist, "get_world_size", lambda: 2)  # 1 is half of it
        with pytest.raises(RuntimeError, match="4096 bytes were not summed"):
            all_reduce.seconds(2**12, place)


def test_each_way_takes_its_tokens_and_threads_and_speaks_or_not(monkeypatch):
    seen = []

    def backward(model, tokens):
        speaks = getattr(model, "require_backward_grad_sync", False)
        seen.append((tokens.numel(), torch.get_num_threads(), speaks))

    monkeypatch.setattr(ddp_steps, "_backward", backward)
    monkeypatch.setattr(ddp_steps.small_gpt, "make", lambda **shape: nn.Linear(2, 2))
    before = torch.get_num_threads()
    with ranks.alone() as place:
        ask = {"shape": {}, "times": [5], "rounds": 1, "sizes": [2**12]}
        told = ddp_steps.clocked(ask, place)
    torch.set_num_threads(before)
    assert list(told["steps"]) == [
        f"{way} 5" for way in ("alone", "double", "threads", "apart", "together", "late")
    ]
    ways = [(5, 1, False), (10, 1, False), (10, 2, False)]
    ways += [(5, 1, False), (5, 1, True), (5, 1, True)]
    assert seen == 2 * ways, "the first round is not counted"


def test_a_digest_sees_each_parameter():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    prints = {ddp_steps.digest(net)}
    for p in net.parameters():
        with torch.no_grad():
            p[-1] = p[-1] + 1
        prints.add(ddp_steps.digest(net))
    assert len(prints) == 5, "one before, one for each of four parameters"


def drawn(figure) -> dict:
    """By label the points of each line of a figure."""
    lines = figure.axes[0].get_lines()
    return {
        one.get_label(): (list(one.get_xdata()), list(one.get_ydata())) for one in lines
    }


def test_figures_show_what_the_rows_say():
    double, way = 6.0, {"together": 4.0, "foretold": 3.0, "threads": 2.0}
    road = {"kind": "road", "latency_s": 2**-10, "bytes_per_s": 2**20, "ranks": 2}
    rows = [
        {"kind": "step", "tokens": 8, "double": double} | way,
        {"kind": "library", "what": "net", "times": 2.5},
        {"kind": "layout", "what": "pool", "stays": 0.5, "converts": 3.0},
        road | {"backend": "gloo"},
        {"kind": "all-reduce", "bytes": 2**20, "seconds": 0.5, "fitted": True},
    ]
    runs = [results.Run({"device": "one"}, rows, [])]
    label = runs[0].label
    gain = drawn(plots.gain_of_two_processes(runs))
    assert gain[f"two processes, {label}"] == ([8], [1.5])
    assert gain[f"predicted, {label}"] == ([8], [2.0])
    assert gain[f"two threads, {label}"] == ([8], [3.0])
    assert drawn(plots.times_without_library(runs))[label] == ([2.5], ["net"])
    layout = drawn(plots.times_by_layout(runs))
    assert layout[f"stays, {label}"] == ([0.5], ["pool"])
    assert layout[f"converts, {label}"] == ([3.0], ["pool"])
    sums = drawn(plots.time_of_all_reduce(runs))
    assert sums[f"made the line: 2 ranks, gloo, {label}"] == ([1024.0], [500.0])
    assert ([1024.0], [1e3 * (1 + 2**-10)]) in sums.values(), "latency, a second a MiB"
    with pytest.raises(ValueError, match="no row of kind 'step'"):
        plots.gain_of_two_processes([results.Run({"device": "one"}, [], [])])


def test_what_is_asked_travels_as_json(tmp_path):
    echo = "import json, sys\nfrom gpulab_utils.workers import tell\n"
    path = script(tmp_path, echo + "tell(json.loads(sys.argv[1]))")
    told = ranks.launch(path, {"sizes": [4]}, ranks=1, limit_s=90)[0]
    assert told["ask"] == {"sizes": [4]}
    assert json.dumps(told["limit_s"]) == "90"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="asks /proc who runs")
def test_what_a_launch_has_left_is_found_without_its_launcher(tmp_path):
    running = ranks.start(script(tmp_path, HANGS), ranks=2, limit_s=60)
    try:
        files, end = [tmp_path / "0", tmp_path / "1"], time.monotonic() + 60
        while not all(f.exists() and f.read_text() for f in files):
            assert time.monotonic() < end, "no rank started"
            time.sleep(0.1)
        pids = [int(f.read_text().split()[0]) for f in files]
        assert set(ranks.left()) == {running.process.pid, *pids}
    finally:
        running.stop()
    assert ranks.left() == []
