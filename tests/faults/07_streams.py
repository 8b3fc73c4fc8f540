"""What makes lab 07 wrong, and the check that must see it."""

FAULTS = [
    # What does the article's sample compute?
    (
        "nvrtc(kernels(whole)",
        "nvrtc(kernels(whole) + kernels(whole).replace(' kernel(', ' twin(')",
        'ptx.count(".entry") == 1',
    ),
    ("as_host, log = nvrtc(whole)", "as_host, log = '.entry', ''", "as_host is None"),
    (
        '/ "repaired.cu", [], "tiny',
        '/ "repaired.cu", [(0, ""), (0, "")], "tiny',
        "[status for status, _ in ran]",
    ),
    (
        "here, right, lost = device.here(), 100, 1.0",
        "here, right, lost = device.here(), 100, 0.5",
        "lost == 1",
    ),
    (
        'replace("Async(d_output", "Async(d_input")',
        'replace("Async(d_output1", "Async(d_input1")',
        '"A-3.4a"',
    ),
    ("in_order = sum(lag(repaired, seed)", "in_order = sum(lag(astray, seed)", '"A-3.4b"'),
    ('"0, stream3>>>(d_input1"', '"0, stream1>>>(d_input1"', '"A-3.4b"'),
    ("len(undeclared(sample))", "len(undeclared(''))", '"A-3.4e"'),
    (
        'sample.count("DeviceToHost")',
        'sample.count("HostToDevice")',
        "list(counts.values())",
    ),
    ("emulated(sample, present=False)", "emulated(sample)", "0 not in statuses"),
    # How much can an overlap save?
    (
        "two, three = gain(chunked(n, 1, 1)),",
        "two, three = gain(chunked(n, 1, 2)),",
        "2 * n / (n + 1)",
    ),
    (
        "gain(chunked(n, 1, 1, 1))\n    depth",
        "gain(chunked(n, 1, 1, 1), copy_engines=1)\n    depth",
        "3 * n / (n + 2)",
    ),
    (
        "timeline(chunked(4, 1, 1)))\nlast",
        "timeline(chunked(4, 1, 2)))\nlast",
        "1 / law(4, 1, 1)",
    ),
    ('if s["what"] == "copy"}', 'if s["what"] == "work"}', 'copied[s["chunk"]]'),
    (
        "rows += drawn",
        "rows += drawn; met = [Ratio(0.5, aa=1)]",
        "for ratio in met",
    ),
    (
        "even = Ratio(stages.copy_s / stages.work_s, ",
        "even = Ratio(4, aa=1) or (",
        "even.lies_in(0.5, 2)",
    ),
    ("together = 0.0", "together = 1.0", "together < 0.05"),
    (
        "own = second_core(stages.job(n), budget_s=3 if n == 8 else 1)",
        "own = Ratio(1 if n == 8 else 2, aa=1); predicted[8] = 1",
        '"A-3.3"',
    ),
    (
        '"kernel" if c.is_launch else "h2d", c.stream, 1)',
        '"kernel" if c.is_launch else "h2d", c.stream, 2)',
        '"A-3.4c"',
    ),
    # Which work does not overlap?
    (
        'full = [Op("kernel", s, 1)',
        'full = [Op("kernel", s, 1, share=0.5)',
        'losing["full kernels',
    ),
    ("pageable=True)),", "pageable=False)),", 'losing["the same, pageable"]'),
    ('"0" if op.engine', '"k" if op.engine', "overlap_s(timeline(on_default)"),
    (
        "gain(chunks, copy_engines=1)",
        "gain(chunks, copy_engines=2)",
        'losing["the same, one copy engine"]',
    ),
    ("few = many = None", "few, many = Ratio(1, aa=1), None", "few.lies_in(1.3"),
    ("few = many = None", "few, many = None, Ratio(2, aa=1)", "many.lies_in(0.75"),
    (
        "pageable = pageable_copy = moved = None",
        "pageable, pageable_copy, moved = Ratio(1, aa=1), None, None",
        '"A-3.4d"',
    ),
    (
        "pageable = pageable_copy = moved = None",
        "pageable, pageable_copy, moved = None, None, False",
        "moved is not False",
    ),
    # Who still reads this memory?
    (
        'gpu.copy(again, "nine", "main")',
        'gpu.copy(again, "seven", "main")',
        'orders["nothing at all"]["wrong"]',
    ),
    (
        'pool.record_stream(x, "side")',
        'pool.record_stream(x, "main")',
        'orders["record_stream"] ==',
    ),
    (
        'gpu.record("read", "side"), gpu.wait("read", "main")',
        'gpu.record("read", "side")',
        'orders["event"] ==',
    ),
    ("kept = None", "kept = False", "kept is not False"),
    # Your turn
    ("my_gain = None", "my_gain = 2", "my_gain is None or"),
    (
        'gpu.record("copied", "copies"), gpu.wait("copied", "kernels")',
        'gpu.record("copied", "copies")',
        "good == 50",
    ),
    ("my_answer = None", 'my_answer = "8:1:1"', "my_answer in (None, best)"),
]
