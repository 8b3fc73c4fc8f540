"""The loop that can be killed, scores over items, and the ladder's single changes."""

import dataclasses
import io
import itertools
import os
import re
from contextlib import redirect_stderr
from types import SimpleNamespace

from gpulab_utils import loops, memory, numerics, programs

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def data(n: int = 22) -> TensorDataset:
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(n, 6, generator=draw), torch.arange(n) % 3)


def parts(lr: float = 0.1) -> tuple:
    """A model with dropout, so that the random state counts, and its optimizer."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 3)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return model, optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1, 9)


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


class Killed(Exception):
    pass


def train(keep=None, killed_at=None, **options):
    """Three epochs of six batches, the last of two items; (losses, weights)."""
    model, optimizer, schedule = parts()
    calls = itertools.count(1)

    def loss(model, batch):
        if next(calls) == killed_at:
            raise Killed
        return loss_of(model, batch)

    how = {"batch": 4, "epochs": 3, "every": 5, "keep": keep, "schedule": schedule}
    losses = loops.fit(model, optimizer, data(), loss, **how | options)
    return losses, [p.detach().clone() for p in model.parameters()]


def equal(a, b) -> bool:
    return a[0] == b[0] and all(map(torch.equal, a[1], b[1]))


@pytest.mark.parametrize("killed_at", [1, 5, 6, 8, 12, 16, 18])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, killed_at):
    """Before the first checkpoint, right at one, within an epoch, over its end."""
    whole = train()
    with pytest.raises(Killed):
        train(tmp_path / "c.pt", killed_at)
    torch.rand(7)  # the random state of the new process is another one
    assert equal(train(tmp_path / "c.pt"), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_checkpoints_change_nothing_and_a_finished_run_does_nothing_more(tmp_path):
    kept = train(tmp_path / "c.pt")
    assert equal(kept, train())
    assert len(kept[0]) == 4, "5, 5, 5 and the 3 steps that are left over"
    assert equal(train(tmp_path / "c.pt"), kept)


def test_a_kill_while_writing_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    def torn(whole, file):
        file.write(b"half")
        raise Killed

    with pytest.raises(Killed):
        train(tmp_path / "c.pt", 8)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", torn)
        with pytest.raises(Killed):
            train(tmp_path / "c.pt")
    assert equal(train(tmp_path / "c.pt"), train())


def test_a_checkpoint_is_on_the_disk_before_it_replaces_the_last(tmp_path, monkeypatch):
    seen = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (seen.append("sync"), sync(f)))
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("put"), replace(a, b)))
    train(tmp_path / "c.pt", epochs=1, every=6)
    assert seen == ["sync", "put"]


def test_a_loss_is_the_mean_of_its_steps_also_of_those_left_over(tmp_path):
    seen = []

    def loss_of(model, batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        seen.append(loss.item())
        return loss

    model, optimizer, _ = parts()
    keep = tmp_path / "kept.pt"
    asked = {"batch": 4, "every": 5, "keep": keep}
    told = loops.fit(model, optimizer, data(), loss_of, epochs=2, **asked)
    means = [sum(part) / len(part) for part in (seen[:5], seen[5:10], seen[10:12])]
    assert told == pytest.approx(means)
    told = loops.fit(model, optimizer, data(), loss_of, epochs=3, **asked)
    assert told[3:] == pytest.approx([sum(seen[12:15]) / 3, sum(seen[15:18]) / 3])


def test_a_checkpoint_of_other_parts_is_refused(tmp_path):
    train(tmp_path / "c.pt", epochs=1)
    with pytest.raises(ValueError, match=r"holds \['model', 'optimizer', 'schedule'\]"):
        loops.load(tmp_path / "c.pt", {"model": parts()[0]})


@pytest.mark.parametrize("other", [{"batch": 2}, {"seed": 1}, {"n": 20}])
def test_a_checkpoint_of_other_batches_is_refused(tmp_path, other):
    """Its next batch would be another one, without a word."""
    how = {"batch": 4, "seed": 0, "n": 22}

    def fit(batch, seed, n):
        model, optimizer, _ = parts()
        asked = {"batch": batch, "seed": seed, "epochs": 3, "keep": tmp_path / "c.pt"}
        return loops.fit(model, optimizer, data(n), loss_of, every=5, **asked)

    told, made = fit(**how), {"batch": 4, "seed": 0, "items": 22}
    with pytest.raises(ValueError, match=re.escape(str(made))):
        fit(**how | other)
    assert fit(**how) == told, "the file is as it was"


def test_each_epoch_has_each_item_once_in_another_order():
    flat = lambda *which: list(itertools.chain(*loops.order(22, 4, *which)))  # noqa: E731
    first, second = flat(0, 0), flat(0, 1)
    assert sorted(first) == sorted(second) == list(range(22))
    assert first != second
    assert flat(1, 0) not in (first, second)


def test_a_nan_is_caught_and_the_last_good_checkpoint_stays(tmp_path):
    model, optimizer, _ = parts()
    calls = itertools.count(1)

    def loss(model, batch):
        bad = next(calls) == 7
        return loss_of(model, batch) * (float("nan") if bad else 1)

    keep = tmp_path / "c.pt"
    with pytest.raises(loops.Diverged, match=r"nan in steps 6 to 10; .* holds step 5"):
        loops.fit(model, optimizer, data(), loss, batch=4, epochs=3, every=5, keep=keep)
    step, losses = loops.load(keep, {"model": model, "optimizer": optimizer})
    assert (step, len(losses)) == (5, 1)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("bad", "kept"), [(5, None), (10, 5)])
def test_a_bad_gradient_of_the_last_step_is_not_saved(tmp_path, bad, kept):
    """The loss is finite and its gradient is not: the weights are ruined after the loss."""
    model, optimizer, _ = parts()
    calls = itertools.count(1)

    def loss(model, batch):
        root = sum((p * 0).sum().sqrt() for p in model.parameters())  # 0, its gradient nan
        return loss_of(model, batch) + (root if next(calls) == bad else 0)

    keep = tmp_path / "c.pt"
    holds = f"{keep} still holds step {kept}" if kept else "no step is kept"
    with pytest.raises(loops.Diverged, match=f"weights became inf or nan .*{holds}"):
        loops.fit(model, optimizer, data(), loss, batch=4, epochs=3, every=5, keep=keep)
    assert keep.exists() == bool(kept)
    if kept:
        assert loops.load(keep, {"model": model, "optimizer": optimizer})[0] == kept
        assert all(p.isfinite().all() for p in model.parameters())


def test_too_large_a_rate_is_caught_without_a_checkpoint():
    model, optimizer, _ = parts(lr=1e30)
    with pytest.raises(loops.Diverged, match="no step is kept"):
        loops.fit(model, optimizer, data(), loss_of, batch=4, epochs=9)


def test_a_bar_tells_where_it_is(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    model, optimizer, _ = parts()
    with redirect_stderr(io.StringIO()) as shown:
        loops.fit(model, optimizer, data(), loss_of, batch=4, epochs=1)
    assert "step 0 to 6" in shown.getvalue()


def test_scores_weigh_items_where_a_mean_of_batches_does_not():
    """Nine of ten right; alone in the last batch is the wrong one."""
    scores, labels = 5 * torch.eye(10), torch.arange(10)
    labels[9] = 0
    batches = list(zip(scores.split(3), labels.split(3), strict=True))
    model = torch.nn.Identity().train()
    score = loops.evaluate(model, batches)
    assert (score.accuracy, score.items) == (0.9, 10)
    assert score.loss == pytest.approx(F.cross_entropy(scores, labels).item())
    assert programs.function("c", "inference")(torch.nn.Identity(), batches) == 0.9
    means = [(x.argmax(1) == y).float().mean().item() for x, y in batches]
    assert sum(means) / len(means) == 0.75
    assert model.training, "left as it was"


def test_a_module_that_was_frozen_stays_so_when_the_model_is_scored():
    model, *_ = parts()
    model[1].eval()
    loops.evaluate(model, [data().tensors])
    assert [m.training for m in model.modules()] == [True, True, False, True]


def test_scores_of_a_language_model_and_of_nothing():
    logits, labels = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    score = loops.evaluate(torch.nn.Identity(), [(logits, labels)])
    assert score.items == 10
    assert score.loss == pytest.approx(F.cross_entropy(logits.mT, labels).item())
    with pytest.raises(RuntimeError, match="must match"):
        programs.function("c", "inference")(torch.nn.Identity(), [(logits, labels)])
    with pytest.raises(ValueError, match="no batch to score"):
        loops.evaluate(torch.nn.Identity(), [])


def few(task, n: int) -> TensorDataset:
    """`n` items of the task's training data, from all over it."""
    tensors = task.data("train").tensors
    return TensorDataset(*(x[:: len(x) // n][:n] for x in tensors))


def test_the_base_rung_is_the_printed_text_bit_for_bit():
    digits = few(loops.CNN, 50)
    draw = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    shuffled = DataLoader(digits, batch_size=4, shuffle=True, generator=draw)
    printed = loops.as_printed(shuffled)
    run = loops.Run(loops.CNN, loops.CNN.base, seed=3, data=digits)
    run(100)
    assert run.steps == 26, "two epochs of 12 batches of four and one of two"
    pairs = zip(printed.state_dict().values(), run.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def changed(a, b) -> set:
    names = [f.name for f in dataclasses.fields(a) if f.name not in ("name", "on")]
    return {name for name in names if getattr(a, name) != getattr(b, name)}


@pytest.mark.parametrize("task", [loops.CNN, loops.GPT], ids=["cnn", "gpt"])
def test_each_rung_changes_one_thing(task):
    rungs = loops.ladder(task)
    named = {rung.name: rung for rung in rungs}
    assert (len(named), rungs[0].on) == (len(rungs), "")
    for before, after in ((named[rung.on], rung) for rung in rungs[1:]):
        assert changed(before, after) in ({"batch", "lr"}, {"batch"}) or (
            len(changed(before, after)) == 1
        )
    level = loops.ladder(task, 32)
    assert {rung.batch for rung in level} == {32}
    assert len({rung.lr for rung in level}) == 1
    assert rungs[:-1] == loops.ladder(task, compiles=False)
    assert rungs[-1].name == "compile", "last, for each batch size compiles anew"


@pytest.mark.parametrize(("unit", "stays"), [("AMX", True), ("", False)])
def test_no_rung_stands_on_autocast_where_no_unit_computes_in_16_bit(
    monkeypatch, unit, stays
):
    monkeypatch.setattr(numerics, "unit", lambda: SimpleNamespace(name=unit))
    rungs = {rung.name: rung for rung in loops.ladder(loops.CNN)}
    assert rungs["autocast"].autocast
    assert rungs["fused optimizer"].autocast == rungs["compile"].autocast == stays
    assert rungs["fused optimizer"].on == ("autocast" if stays else "channels last")
    assert rungs["batch 80"].on == "fused optimizer"


def test_parts_of_a_step_make_up_the_whole_and_a_slow_loader_shows():
    rung = dataclasses.replace(loops.CNN.base, batch=32)
    told = loops.parts(loops.CNN, rung, samples=64)
    assert told.keys() == {"loader", "update", "rest"}
    assert sum(told.values()) == pytest.approx(1)
    assert min(told.values()) > 0

    class Slow(TensorDataset):
        def __getitem__(self, i):
            sum(range(10**6))
            return super().__getitem__(i)

    real = loops.CNN.data
    slow = dataclasses.replace(loops.CNN, data=lambda s: Slow(*real(s).tensors))
    assert loops.parts(slow, rung, samples=64)["loader"] > 0.5


def test_parts_of_a_step_tell_a_slow_update():
    class Slow(torch.optim.Optimizer):
        def step(self, closure=None):
            sum(range(4 * 10**6))

    slow = lambda params, lr, fused: Slow(params, {"lr": lr})  # noqa: E731
    task = dataclasses.replace(loops.CNN, optimizer=slow)
    rung = dataclasses.replace(loops.CNN.base, batch=32)
    assert loops.parts(task, rung, samples=64)["update"] > 0.5


def test_kernels_are_told_by_sample_and_the_library_does_most():
    """Two convolutions and two products forward and backward; pooling is in the rest."""
    run = loops.Run(loops.CNN, dataclasses.replace(loops.CNN.base, batch=32))
    run(32)
    kernels = loops.turns.__globals__["_kernels"]
    few_, many = kernels(run, 64), kernels(run, 256)
    assert many.keys() == {"library", "rest"}
    assert many["library"] > 0.3 * sum(many.values()) > 0
    assert 0.3 < sum(few_.values()) / sum(many.values()) < 3
    assert 20 < sum(many.values()) < 20_000, "microseconds"


def test_rows_hold_speed_and_bytes_of_the_text_and_each_rung():
    rungs = loops.ladder(loops.CNN, compiles=False)[:2]
    told = loops.Turns({loops.TEXT: [0.1], rungs[0].name: [0.2], "batch 32": [0.05]}, {})
    told.first_s.update({rung.name: 1.0 for rung in rungs})
    rows = loops.rows(loops.CNN, rungs, told)
    assert [row["rung"] for row in rows] == [loops.TEXT, "as printed", "batch 32"]
    assert [row["per_s"] for row in rows] == [10, 5, 20]
    assert [row.get("on") for row in rows] == [None, "", "as printed"]
    assert rows[2]["bytes"] == loops.peak_bytes(loops.CNN, rungs[1]).total


@pytest.mark.parametrize("task", [loops.CNN, loops.GPT], ids=["cnn", "gpt"])
def test_every_rung_trains_the_same_thing(task, monkeypatch):
    """The first losses agree; how a batch is cut, and asked for, changes no bit."""
    monkeypatch.setenv("GPULAB_TINY", "1")
    items, first = few(task, 32), {}
    for rung in loops.ladder(task, 8):
        rung = dataclasses.replace(rung, item_every=1)
        run = loops.Run(task, rung, data=items)
        run(16)
        first[rung.name] = run.losses
    exact, *others = first.values()
    assert first["batches cut at once"] == first["no .item() per step"] == exact
    for losses in others:
        assert losses == pytest.approx(exact, rel=0.02)


def test_the_loss_is_asked_for_no_more_often_than_told():
    rung = dataclasses.replace(loops.CNN.base, item_every=5)
    run = loops.Run(loops.CNN, rung, data=few(loops.CNN, 40))
    every = loops.Run(loops.CNN, loops.CNN.base, data=few(loops.CNN, 40))
    run(40), every(40)
    assert run.losses == pytest.approx(
        [sum(every.losses[:5]) / 5, sum(every.losses[5:]) / 5]
    )


@pytest.mark.parametrize("to_device", [True, False])
def test_whether_memory_is_pinned_does_not_depend_on_how_a_batch_is_cut(
    monkeypatch, to_device
):
    """Else the rung that cuts batches at once would change two things on a GPU."""
    asked, scope = [], loops.Run._endless.__globals__
    real = scope["DataLoader"]
    noted = lambda *a, pin_memory, **k: (asked.append(pin_memory), real(*a, **k))[1]  # noqa: E731
    monkeypatch.setitem(scope, "DataLoader", noted)
    for gather in (False, True):
        rung = loops.Rung(gather=gather, to_device=to_device)
        run = loops.Run(loops.CNN, rung, data=few(loops.CNN, 8))
        run.place = torch.device("cuda")  # no tensor goes there: only the loader is asked
        next(run.batches)
    assert asked == [to_device] * 2


def test_a_run_tells_how_many_samples_its_whole_batches_had():
    rung = dataclasses.replace(loops.CNN.base, batch=32)
    assert loops.Run(loops.CNN, rung, data=few(loops.CNN, 70))(40) == 64
    assert loops.Run(loops.CNN, rung, data=few(loops.CNN, 70))(70) == 70


def test_the_rate_is_chosen_on_training_data_alone():
    """Every training item is on one side of the cut, every digit on both, no test item."""
    held = loops.held_out(loops.CNN)
    asked = []
    real = loops.CNN.data
    spied = dataclasses.replace(loops.CNN, data=lambda s: (asked.append(s), real(s))[1])
    parts = [loops.held_out(spied).data(split).tensors for split in ("train", "test")]
    assert asked == ["train", "train"]
    assert [len(images) for images, _ in parts] == [3200, 800]
    whole = real("train").tensors[0]
    found = torch.cat([images for images, _ in parts])
    assert sorted(found.sum((1, 2, 3)).tolist()) == sorted(whole.sum((1, 2, 3)).tolist())
    for _, labels in parts:
        counts = labels.bincount()
        assert counts.min() == counts.max(), "sorted by label: a fifth of each"
    assert torch.equal(held.data("test").tensors[0], whole[4::5])


def toy() -> loops.Task:
    """One weight, better the larger it grows."""

    class Pull(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return torch.stack([-self.weight * x, self.weight * x], -1)

    tensors = torch.ones(50, 1), torch.ones(50, 1, dtype=torch.long)
    sgd = lambda params, lr, fused: torch.optim.SGD(params, lr=lr)  # noqa: E731
    return loops.Task("toy", Pull, sgd, lambda s: TensorDataset(*tensors), loops.Rung(), ())


def test_the_rate_with_the_least_loss_wins_and_an_edge_is_told():
    grid = loops.doublings(0.01, 0, 3)
    found = loops.choose_rate(toy(), loops.Rung(), grid, samples=8, seeds=(0, 1))
    assert found.rate == grid[-1], "the more the better here"
    assert found.at_edge
    assert list(found.losses) == grid
    assert len(found.rows) == 2 * len(grid)
    assert found.accuracy(grid[-1]) == 1
    rates = (*grid, float("inf"))
    found = loops.choose_rate(toy(), loops.Rung(), rates, samples=8, seeds=(0,))
    assert (found.rate, found.at_edge) == (grid[-1], False)
    with pytest.raises(ValueError, match="every rate diverges"):
        loops.choose_rate(toy(), loops.Rung(), rates[-1:], samples=8, seeds=(0,))


def test_ends_train_once_what_no_bit_tells_apart(monkeypatch):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")  # a GPU has a rung more
    made = []
    real = loops.ends.__globals__["Run"]
    counted = lambda *a, **k: (made.append(a[1].name), real(*a, **k))[1]  # noqa: E731
    monkeypatch.setitem(loops.ends.__globals__, "Run", counted)
    rungs = loops.ladder(loops.CNN, 32, compiles=False)
    rows = loops.ends(loops.CNN, rungs[:4], samples=96, seeds=(0, 1), items=100)
    assert made == ["as printed", "channels last"] * 2
    assert [row.get("same_as") for row in rows[:4]] == [None, *["as printed"] * 2, None]
    assert {(row["samples"], row["items"], row["batch"]) for row in rows} == {(96, 100, 32)}
    assert rows[0]["loss"] == rows[1]["loss"] != rows[4]["loss"], "another seed"
    with pytest.raises(ValueError, match="two rungs of one name"):
        loops.ends(loops.CNN, [rungs[0]] * 2, samples=4)


def test_what_trains_once_has_the_same_bits_over_more_than_an_epoch():
    digits, weights = few(loops.CNN, 40), []
    for rung in loops.ladder(loops.CNN, 16)[:3]:
        run = loops.Run(loops.CNN, rung, seed=5, data=digits)
        run(100)
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    assert all(torch.equal(weights[0], other) for other in weights[1:])


def rows(**ends) -> list[dict]:
    return [
        {"rung": name, "seed": seed, "accuracy": value}
        for name, values in ends.items()
        for seed, value in enumerate(values)
    ]


def test_rungs_are_held_against_each_other_pair_by_pair():
    """Seeds differ by 0.1, the pairs by 0.01 to 0.03: that is seen. t(2) = 4.303."""
    told = loops.apart(rows(a=[0.7, 0.8, 0.9], b=[0.71, 0.82, 0.93]), "b", "a")
    assert told.mean == pytest.approx(0.02)
    assert told.half == pytest.approx(4.303 * 0.01 / 3**0.5)
    assert told.equal
    assert told.open == pytest.approx(told.mean + told.half)
    assert not loops.apart(rows(a=[0.7, 0.8, 0.9], b=[0.72, 0.82, 0.921]), "b", "a").equal
    assert loops.apart(rows(a=[0.7, 0.8], b=[0.7, 0.8]), "b", "a").within(1e-9)


def test_pairs_need_the_same_seeds():
    for found in (rows(a=[1, 2], b=[1, 2, 3]), rows(a=[1, 2])):
        with pytest.raises(ValueError, match="a pair needs the same seeds"):
            loops.apart(found, "b", "a")
    with pytest.raises(ValueError, match="needs 2 to 20"):
        loops.apart(rows(a=[1], b=[2]), "b", "a")


@pytest.mark.parametrize("task", [loops.CNN, loops.GPT], ids=["cnn", "gpt"])
def test_bytes_of_a_rung_are_what_torch_counts(task, monkeypatch):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")  # else the allocator is asked, twice
    monkeypatch.setenv("GPULAB_TINY", "1")
    base, *_, top = loops.ladder(task, compiles=False)
    for rung in (base, top):
        told = loops.peak_bytes(task, rung)
        run = loops.Run(task, rung)
        x, y = next(run.batches)
        parts = {"modules": [run.model], "optimizers": [run.optimizer]}
        other = memory.peak(lambda run=run, x=x, y=y: run.step(x, y), **parts)
        assert told.total == pytest.approx(other.total, rel=0.03)
        weights = sum(p.nbytes for p in run.model.parameters())
        states = (2 if task is loops.GPT else 1) * weights
        assert told.by_category["optimizer"] == pytest.approx(states, rel=0.01)
    assert loops.peak_bytes(task, dataclasses.replace(top, compiled=True)) is None


def test_rungs_take_turns(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    turn = []
    real = loops.Run.__call__
    note = lambda run, n: (turn.append(run.rung.name), real(run, n))[1]  # noqa: E731
    monkeypatch.setattr(loops.Run, "__call__", note)
    rungs = loops.ladder(loops.CNN, 8, compiles=False)[:2]
    threads = torch.get_num_threads()
    told = loops.turns(loops.CNN, rungs, samples=16, rounds=8, printed=True)
    assert torch.get_num_threads() == threads
    names = [rung.name for rung in rungs]
    assert turn == names * 9, "the first calls count for nothing"
    assert list(told.seconds) == [*names, loops.TEXT]
    assert {len(each) for each in told.seconds.values()} == {8}
    assert all(0 < told.per_s(name) < 1e6 for name in told.seconds)
    assert told.ratio(loops.TEXT, names[1]).value > 0
    assert told.first_s.keys() == told.seconds.keys()
    assert told.ratio(names[0], names[0]).value == 1


def test_the_text_is_charged_for_both_of_its_epochs(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    sizes, scope = [], loops.turns.__globals__
    monkeypatch.setitem(
        scope, "as_printed", lambda loader: sizes.append(len(loader.dataset))
    )
    assert scope["_text"](loops.CNN, 40)(0) == 2 * sizes[0] == 40


def test_a_ratio_is_how_many_times_as_fast():
    told = loops.Turns({"slow": [0.4] * 8, "fast": [0.1] * 8}, {})
    assert told.ratio("slow", "fast").value == pytest.approx(4)
    assert told.ratio("slow", "fast").lies_in(2, 8)
    few_rounds = loops.Turns({"slow": [0.4] * 7, "fast": [0.1] * 7}, {})
    assert few_rounds.ratio("slow", "fast").lies_in(2, 8) is None
