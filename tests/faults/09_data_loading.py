"""What makes lab 09 wrong, and the check that must see it."""

FAULTS = [
    # Does prefetching shorten a load, or hide it?
    (
        "max(LOAD_MS / workers, step_ms) if workers",
        "LOAD_MS / workers + step_ms if workers",
        "abs(long_s - batch_ms(workers, 10))",
    ),
    (
        "return step_ms * item_s / 2",
        "return step_ms * item_s",
        "math.isclose(told(0, STEP_MS) / item_s, 2 * batch_ms(0, STEP_MS))",
    ),
    (
        "jpegs.Waiting([item_s] * 64)",
        "jpegs.Waiting([item_s / 2] * 64)",
        "shortest >= item_s",
    ),
    (
        "compare(lambda: epoch(feeds[1], 10), lambda: epoch(feeds[4], 10), **turn[1])",
        "Ratio(1, aa=1)",
        "scaled.lies_in(",
    ),
    (
        "compare(lambda: epoch(feeds[8], 10), lambda: epoch(feeds[4], 10), **turn[2])",
        "Ratio(0.5, aa=1)",
        "past.lies_in(0.7, 1.4)",
    ),
    ('compare(*steps, clock="wall", budget_s=2.9)', "Ratio(1, aa=1)", "depth.lies_in("),
    (
        "compare(lambda: epoch(feeds[0], 30), lambda: epoch(feeds[1], 30), **turn[0])",
        "Ratio(1, aa=1)",
        'claims.check("A-4.1b"',
    ),
    # How many workers does a real decoder need?
    (
        "DataLoader(pictures, 4, **jpegs.workers(2))",
        "DataLoader(pictures, 4, sampler=range(11, -1, -1))",
        "torch.cat(order).tolist() == list(range(12))",
    ),
    (
        "DataLoader(pictures, 4, **jpegs.workers(2))",
        "DataLoader(jpegs.Pictures(folder, 12, draft=True), 4)",
        "torch.equal(torch.cat(images),",
    ),
    (
        "compare(lambda: pictures[0], lambda: drafts[0], budget_s=0.6)",
        "Ratio(1, aa=1)",
        "cheaper.lies_in(1.5)",
    ),
    (
        '"images_per_s": n / took_s',
        '"images_per_s": n / took_s * 1e3',
        'r["images_per_s"] <= r["model_per_s"]',
    ),
    ("shutil.rmtree(folder)", "pass", "not folder.exists()"),
    # What does a batch share?
    (
        "for rows in (1, 16, 64)",
        "for rows in (1, 15, 64)",
        "16 * one.bytes_moved - some.bytes_moved",
    ),
    ("compare(lots.run, some.run, budget_s=1.2)", "Ratio(0.3, aa=1)", "waits.lies_in(0.8)"),
    (
        "compare(lambda: [single.run() for _ in range(64)], together.run)",
        "Ratio(1, aa=1)",
        "calls.lies_in(8)",
    ),
    (
        "compare(lambda: [one.run() for _ in range(16)], some.run, budget_s=2)",
        "Ratio(1, aa=1)",
        "shared.lies_in(",
    ),
    # When do workers and pinning do nothing?
    (
        'compare(anew, drain, clock="wall", budget_s=1.5)',
        "Ratio(1, aa=1)",
        "new.lies_in(2)",
    ),
    (
        "here, kept = device.here(),",
        'here, kept = __import__("dataclasses").replace(device.here(), is_gpu=True),',
        "batch.is_pinned() or not here.is_gpu",
    ),
    (
        '("if True:", \'if __name__ == "__main__":\')',
        '("if True:", "if True:")',
        'list(said.values()) == ["AttributeError", "RuntimeError", "works"]',
    ),
    # Your turn
    ("my_workers = None", "my_workers = 10", "my_workers in (None, needed)"),
    (
        "load / cores <= step else",
        "load <= step else",
        '(said == "cheaper items") == (long_s > 1.01 * step)',
    ),
    (
        "if load < step / 10:",
        "if load < step:",
        '(said == "leave it") == (load < step / 10)',
    ),
    ("my_bytes = None", "my_bytes = 77_070_336", "my_bytes in (None, ahead)"),
]
