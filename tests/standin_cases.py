"""What the GPU stand-in promises, one function each; `test_standin.py` runs them.

As a script, with GPULAB_DEVICE=standin, each case runs in a fork of its own, and what went
wrong is printed as JSON: {case: message or ""}.
"""

import inspect
import json
import os
import sys
import threading
import traceback

from gpulab_utils import bench, compare, device, memory, standin, timing
from gpulab_utils.units import GIB, MIB

import pytest
import torch
import torch.nn.functional as F

KIB = 1024


def allocated() -> int:
    return torch.cuda.memory_allocated()


def on_card(tensor) -> bool:
    from gpulab_utils.standin import card

    return card.place(tensor) == card.CARD


def case_the_card_cannot_be_mistaken():
    here = device.here()
    assert (here.standin, here.is_gpu) == (True, True)
    assert here.name == torch.cuda.get_device_name(0) == "gpulab stand-in (CPU)"
    assert here.capability == torch.cuda.get_device_capability() == (8, 6)
    assert here.mem_bytes == torch.cuda.get_device_properties(0).total_memory == 12 * GIB
    assert 0 < here.cache_bytes <= 64 * MIB
    assert (here.dtype, here.device) == (torch.bfloat16, torch.device("cuda", 0))
    assert torch.cuda.is_available()
    assert torch.cuda.is_bf16_supported()
    assert (torch.cuda.device_count(), torch.cuda.get_arch_list()) == (1, ["sm_86"])
    assert torch.version.cuda


def case_every_way_onto_the_card():
    card, w = torch.device("cuda"), torch.ones(2, 2)
    made = [
        torch.ones(2, device="cuda"),
        torch.randn(2, device=card),
        torch.arange(2, device=torch.device("cuda", 0)),
        torch.tensor([1.0], device="cuda:0"),
        torch.as_tensor(w, device="cuda"),
        torch.zeros_like(w, device=card),
        w.new_zeros(2, device="cuda"),
        w.to("cuda"),
        w.to(card, torch.float16, non_blocking=True),
        w.to(0),
        w.to(device=card, dtype=torch.float16),
        w.cuda(),
        w.to(torch.ones(1, device="cuda")),
        torch.nn.Linear(2, 2, device="cuda").weight,
        torch.nn.Linear(2, 2).to(card).weight,
        torch.nn.Linear(2, 2).cuda().bias,
        torch.nn.Linear(2, 2).to(0).bias,
        torch.ones(2, device=torch.device(0)),
    ]
    with torch.device("cuda"):
        made.append(torch.ones(2))
    torch.set_default_device("cuda")
    made.append(torch.ones(2))
    torch.set_default_device(None)
    assert all(map(on_card, made))
    assert not on_card(w)
    assert not on_card(torch.ones(2))


def case_results_follow_their_inputs():
    x = torch.ones(2, 3, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad((x * x).sum(), x)
    made = [x + 1, x.T, x[0], torch.cat([x, x]), x.split(1)[0], grad, torch.zeros_like(x)]
    assert all(map(on_card, made))
    assert not any(map(on_card, [x.cpu(), x.to("cpu"), x.detach().to(torch.device("cpu"))]))


def case_tensors_stay_on_the_cpu_and_siblings_follow():
    x = torch.ones(2, device="cuda")
    assert x.device.type == "cpu"
    assert on_card(torch.ones(2, device=x.device))
    assert on_card(torch.ones(2).to(x.device))
    assert torch.ones(2).device == torch.device("cpu")


def case_crossing_copies():
    host = torch.zeros(2)
    x = host.to("cuda")
    x += 1
    assert host.tolist() == [0, 0]
    assert x.to("cuda") is x
    back = x.cpu()
    back += 1
    assert x.tolist() == [1, 1]


def case_a_generator_of_the_card():
    draws = []
    for _ in range(2):
        generator = torch.Generator(device="cuda").manual_seed(3)
        draws.append(torch.rand(4, device="cuda", generator=generator).tolist())
    assert draws[0] == draws[1]
    torch.cuda.manual_seed_all(1)
    first = torch.rand(1, device="cuda")
    torch.cuda.manual_seed(1)
    assert torch.equal(first, torch.rand(1, device="cuda"))
    assert isinstance(generator, torch.Generator)


def case_no_time_before_somebody_waits():
    x = torch.ones(8, device="cuda")
    waits = {
        "event": lambda end: end.synchronize(),
        "stream": lambda end: torch.cuda.current_stream().synchronize(),
        "device": lambda end: torch.cuda.synchronize(),
        "accelerator": lambda end: torch.accelerator.synchronize(),
        "value": lambda end: x.sum().item(),
        "copy": lambda end: x.cpu(),
        "asked twice": lambda end: (end.query(), end.query()),
    }
    for name, wait in waits.items():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        x.sum()
        end.record()
        with pytest.raises(RuntimeError, match="device not ready"):
            start.elapsed_time(end)
        wait(end)
        assert start.elapsed_time(end) > 0, name


def case_events_refuse_what_cuda_refuses():
    plain, timed = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(plain)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(torch.cuda.Event(enable_timing=True))


def case_a_planted_missing_synchronize_is_caught():
    source = inspect.getsource(timing._event_time)
    assert source.count("    end.synchronize()\n") == 1
    namespace = dict(vars(timing))
    exec(source.replace("    end.synchronize()\n", ""), namespace)
    assert timing._event_time(lambda: None) > 0
    with pytest.raises(RuntimeError, match="device not ready"):
        namespace["_event_time"](lambda: None)


def case_an_asynchronous_copy_holds_nan_until_waited_for():
    x = torch.arange(3, device="cuda", dtype=torch.float32)
    pinned = torch.empty(3, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    copies = [x.to("cpu", non_blocking=True), pinned]
    assert all(copy.isnan().all() for copy in copies)
    x.fill_(7)  # later on the stream: the copy keeps what was there
    torch.cuda.current_stream().synchronize()
    assert [copy.tolist() for copy in copies] == [[0, 1, 2]] * 2
    assert x.to("cpu").tolist() == [7, 7, 7]


def case_integers_and_truths_are_hidden_too():
    x = torch.tensor([3, 0], device="cuda")
    low, truth = x.to("cpu", non_blocking=True), (x > 1).to("cpu", non_blocking=True)
    small = x.to(torch.uint8).to("cpu", non_blocking=True)
    assert low.tolist() == [torch.iinfo(torch.int64).min] * 2
    assert (truth.tolist(), small.tolist()) == ([False, True], [255, 255])
    torch.cuda.synchronize()
    assert (low.tolist(), truth.tolist(), small.tolist()) == ([3, 0], [True, False], [3, 0])


def case_waiting_for_another_stream_is_not_enough():
    x, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        copy = x.to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    assert copy.isnan().all()
    torch.cuda.current_stream().wait_stream(side)
    assert copy.isnan().all()  # the stream waits for the other, the host not yet
    torch.cuda.current_stream().synchronize()
    assert copy.tolist() == [1, 1]


def case_a_copy_outlives_its_stream():
    def late(x):
        with torch.cuda.stream(torch.cuda.Stream()):
            return x.to("cpu", non_blocking=True)

    copy = late(torch.ones(2, device="cuda"))
    torch.cuda.synchronize()
    assert copy.tolist() == [1, 1]


def case_allocated_bytes():
    before = allocated()
    x = torch.empty(1000, 1000, device="cuda")  # 4,000,000 bytes = 7812.5 times 512
    assert allocated() - before == 7813 * 512
    view = x[:10].T
    torch.empty(1000)  # the host costs nothing
    assert allocated() - before == 7813 * 512
    y = x + x
    assert allocated() - before == 2 * 7813 * 512
    del y
    assert torch.cuda.max_memory_allocated() - before == 2 * 7813 * 512
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == allocated()
    del x
    assert allocated() - before == 7813 * 512  # the view holds it
    del view
    assert allocated() == before
    assert torch.cuda.memory_reserved() >= 8 * MIB - 2 * MIB > 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= 2 * MIB


def workspace() -> int:
    """Bytes that the first product of matrices takes for good."""
    before = allocated()
    torch.ones(1, 1, device="cuda") @ torch.ones(1, 1, device="cuda")
    return allocated() - before


def case_the_first_product_takes_its_workspace():
    assert workspace() == 8_519_680  # cuBLAS: 2 x 4,096 KiB and 8 x 16 KiB
    assert workspace() == 0


def case_a_model_gradients_and_states_are_counted():
    workspace()
    before, n = allocated(), 512 * 512 * 4
    model = torch.nn.Linear(512, 512, bias=False).to("cuda")
    assert allocated() - before == n
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 512, device="cuda")).sum().backward()
    assert allocated() - before == 2 * n
    optimizer.step()
    assert 4 * n <= allocated() - before < 4 * n + 4 * KIB
    optimizer.zero_grad()
    model.to("cpu")
    assert 2 * n <= allocated() - before < 2 * n + 4 * KIB  # the states are still there


def case_figures_of_the_allocator():
    kept = torch.empty(4 * MIB, dtype=torch.int8, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == allocated() >= kept.nbytes
    assert stats["reserved_bytes.all.peak"] == torch.cuda.max_memory_reserved()
    free, total = torch.cuda.mem_get_info()
    assert total - free > torch.cuda.memory_reserved() >= allocated()
    sizes = [segment["total_size"] for segment in torch.cuda.memory_snapshot()]
    assert sum(sizes) == allocated()
    assert "allocated: 0.00 GiB" in memory.report()
    assert "memory summary" in torch.cuda.memory_summary()
    seen = memory.peak(lambda: kept.clone(), modules=[])
    assert seen.total == kept.nbytes


def case_a_cap_is_kept():
    with memory.cap(int(10.85 * GIB)):
        with pytest.raises(torch.OutOfMemoryError, match=r"to allocate 11264\.00 MiB"):
            torch.empty(11 * GIB, dtype=torch.int8, device="cuda")
        assert allocated() < MIB
        kept = torch.empty(10 * GIB, dtype=torch.int8, device="cuda")  # touched by nobody
    del kept
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(12 * GIB, dtype=torch.int8, device="cuda")  # the context needs some
    with pytest.raises(ValueError, match="Invalid fraction"):
        torch.cuda.set_per_process_memory_fraction(1.5)


def case_host_and_card_do_not_mix():
    x = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match=r"found at least two devices, cuda:0 and cpu!"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match="two devices"):
        torch.nn.Linear(2, 2)(x)
    assert (x * torch.tensor(2.0)).tolist() == [2, 2]  # a scalar of the host may
    assert x[torch.tensor([0])].tolist() == [1]  # and so may indices
    for to_numpy in (lambda: x.numpy(), lambda: __import__("numpy").asarray(x)):
        with pytest.raises(TypeError, match=r"Tensor\.cpu"):
            to_numpy()


def case_other_threads_see_no_mode():
    seen = {}

    def work():
        seen["stack"] = len(torch.overrides._get_current_function_mode_stack())
        seen["host"] = torch.ones(2).sum().item()
        try:
            torch.ones(2, device="cuda")
        except NotImplementedError as error:
            seen["card"] = str(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (seen["stack"], seen["host"]) == (0, 2)
    assert "Other threads see no card" in seen["card"]


def case_backward_runs_user_code_on_the_card():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).to("cuda")

    def layer(x):
        return model(x + torch.ones(4, device="cuda"))

    x = torch.ones(2, 4, device="cuda", requires_grad=True)
    x.register_hook(lambda grad: grad * torch.tensor(2.0, device="cuda"))
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert on_card(x.grad)
    assert all(on_card(p.grad) for p in model.parameters())


def case_mixed_precision():
    model = torch.nn.Linear(4, 4, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda"):
        out = model(torch.ones(1, 4, device="cuda"))
    assert out.dtype == torch.float16
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model(torch.ones(1, 4, device="cuda")).dtype == torch.bfloat16
    before = model.weight.sum().item()
    scaler.scale(out.float().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.weight.sum().item() != before


def case_attention():
    q = torch.randn(1, 2, 8, 16, device="cuda", dtype=device.here().dtype)
    assert on_card(F.scaled_dot_product_attention(q, q, q, is_causal=True))
    Backend = torch.nn.attention.SDPBackend
    for backend in Backend.FLASH_ATTENTION, Backend.EFFICIENT_ATTENTION, Backend.MATH:
        with torch.nn.attention.sdpa_kernel(backend):
            assert F.scaled_dot_product_attention(q, q, q).shape == q.shape


def case_a_language_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    here = device.here()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 50}
    shape = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)
    model = LlamaForCausalLM(shape).to(here.device, here.dtype).eval()
    count = sum(p.numel() for p in model.parameters())
    assert 2 * count <= allocated() < 2 * count + 32 * KIB
    ids = torch.randint(0, 50, (1, 6), device=here.device)
    mask = torch.ones_like(ids)
    made = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
    assert made.shape == (1, 10)
    assert on_card(made)
    model.train()
    model(ids, labels=ids).loss.backward()
    assert on_card(model.lm_head.weight.grad)


def case_a_model_loaded_straight_onto_the_card():
    import tempfile

    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 50}
    shape = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(shape).save_pretrained(folder)
        there = {"": torch.device("cuda", 0)}
        model = LlamaForCausalLM.from_pretrained(folder, device_map=there)
    assert all(map(on_card, model.parameters()))


def case_clocks():
    from torch.utils.benchmark import Timer

    x = torch.ones(64, 64, device="cuda")
    seen = bench(lambda: x @ x, budget_s=0.02)
    assert seen.device_s > 0
    assert 0 < seen.launch_s <= seen.wall_s
    assert compare(lambda: x @ x, lambda: x + x, budget_s=0.02).value > 0
    assert Timer("x + x", globals={"x": x}).blocked_autorange(min_run_time=0.01).median > 0


def case_compiled_code():
    x = torch.ones(4, device="cuda")
    fn = torch.compile(lambda a: (a + 1).sin(), backend="aot_eager")
    model = torch.compile(torch.nn.Linear(4, 4, device="cuda"), backend="aot_eager")
    assert torch.allclose(fn(x), (x + 1).sin())
    assert on_card(fn(x))
    assert on_card(model(x))
    assert isinstance(model, torch.nn.Module)


def case_a_loader_that_pins():
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(4.0))
    seen = []
    for workers in 0, 1:
        for (batch,) in DataLoader(data, 2, pin_memory=True, num_workers=workers):
            assert batch.is_pinned()
            seen += batch.to("cuda", non_blocking=True).tolist()
    assert seen == [0, 1, 2, 3] * 2
    assert not torch.ones(2).is_pinned()
    torch.ones(2, device="cuda").record_stream(torch.cuda.current_stream())


def case_a_recorded_tensor_keeps_its_memory_until_its_stream_was_waited_for():
    x, side = torch.ones(2**18, device="cuda"), torch.cuda.Stream()
    held = allocated()
    x.record_stream(side)
    del x
    assert allocated() == held
    side.synchronize()
    assert allocated() < held


def case_files():
    import io

    file = io.BytesIO()
    torch.save({"w": torch.ones(2)}, file)
    file.seek(0)
    assert on_card(torch.load(file, map_location="cuda")["w"])


def case_the_accelerator():
    acc = torch.accelerator
    assert acc.current_accelerator() == torch.device("cuda")
    assert (acc.is_available(), acc.device_count(), acc.current_device_index()) == (
        True,
        1,
        0,
    )
    kept = torch.ones(2, device=acc.current_accelerator())
    assert acc.memory_allocated() == allocated() > 0
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == allocated()
    event = torch.Event(enable_timing=True)
    acc.current_stream().record_event(event)
    acc.synchronize()
    assert event.query()
    del kept


def case_a_graph_repeats_what_was_captured():
    x, graph = torch.ones(2, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (2 * x).relu() + 1
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            y.sum().item()
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [11, 11]


def case_4_bit_layers():
    import bitsandbytes as bnb

    layer = bnb.nn.Linear4bit(64, 64, bias=False, quant_type="nf4")
    dense = layer.weight.data.clone()
    layer = layer.to("cuda")
    assert layer.weight.dtype == torch.uint8
    assert on_card(layer.weight)
    x = torch.eye(64, device="cuda")
    near = layer.train()(x).T.cpu()
    assert 0 < (near - dense).norm() / dense.norm() < 0.15


def case_processes_over_gloo():
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
    dist = torch.distributed
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    from torch.distributed.fsdp import fully_shard

    x = torch.ones(2, 4, device="cuda")
    dist.all_reduce(x)
    layer = torch.nn.Linear(4, 4).to("cuda")
    torch.nn.parallel.DistributedDataParallel(layer, device_ids=[0])(x).sum().backward()
    assert on_card(layer.weight.grad)
    sharded = fully_shard(torch.nn.Linear(4, 4).to("cuda"))
    sharded(x).sum().backward()
    dist.destroy_process_group()


def case_int4_products():
    codes = torch.randint(0, 16, (16, 64), dtype=torch.int32, device="cuda")  # [out, in]
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(pairs, 2)
    assert (packed.shape, packed.dtype) == ((2, 2, 32, 1), torch.int32)
    assert packed.nbytes == codes.numel() // 2
    scales = torch.ones(2, 16, 2, dtype=torch.bfloat16, device="cuda")
    scales[..., 1] = 0  # the zero point of this layout is 8
    x = torch.eye(64, dtype=torch.bfloat16, device="cuda")
    dense = torch._weight_int4pack_mm(x, packed, 32, scales)
    assert torch.equal(dense, (codes - 8).T.to(torch.bfloat16))


def case_a_triton_kernel_is_interpreted():
    from gpulab_utils import triton_ops

    x, w = torch.randn(3, 5, device="cuda"), torch.ones(5, device="cuda")
    y = triton_ops.rms_norm(x, w)
    assert on_card(y)
    assert torch.allclose(y, triton_ops.eager(x, w), atol=1e-6)


def case_a_fake_tensor_costs_nothing():
    from torch._subclasses import FakeTensorMode

    before = allocated()
    with FakeTensorMode():
        layer = torch.nn.Linear(1000, 1000, device="cuda")
        layer(torch.ones(1, 1000, device="cuda")).sum().backward()
    assert allocated() == before


def case_what_is_not_modelled_says_so():
    with pytest.raises(NotImplementedError, match=r"standin/stubs\.py"):
        torch.cuda.current_blas_handle()


def case_nothing_is_recorded():
    from gpulab_utils import results

    os.environ["GPULAB_RECORD"] = "1"
    with pytest.raises(RuntimeError, match="stand-in"):
        results.record("01_model_size", [])


def case_stubs_tell_where_they_were_called():
    from gpulab_utils.standin import stubs

    code = compile(
        "import torch\ntorch.cuda._sleep(1)", str(stubs.ROOTS[1]) + "/x.py", "exec"
    )
    exec(code, {})
    assert (str(stubs.ROOTS[1]) + "/x.py", 2, "torch.cuda._sleep") in stubs._lines


CASES = {name: case for name, case in list(globals().items()) if name.startswith("case_")}


def outcome(case) -> str:
    """What went wrong in a fork of this process, or nothing."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        with os.fdopen(read) as told:
            text = told.read()
        status = os.waitpid(pid, 0)[1]
        return text or ("" if status == 0 else f"ended with status {status}")
    try:
        case()
        text = ""
    except BaseException:
        text = traceback.format_exc()
    os.write(write, text.encode()[-60_000:])
    os._exit(0)


if __name__ == "__main__":
    wanted = sys.argv[1:] or CASES
    print(json.dumps({name: outcome(CASES[name]) for name in wanted}))
    assert standin.entered()
