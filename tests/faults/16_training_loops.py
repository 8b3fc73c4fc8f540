"""What makes lab 16 wrong, and the check that must see it."""


def before(anchor: str, planted: str, check: str) -> tuple[str, str, str]:
    """A fault that is planted in front of what stands in the lab."""
    return anchor, f"{planted}\n{anchor}", check


IN_TWO = 'idle = b[-1].devices == ("cpu",)'
RIGHT = "ordered = cleared and"
FITS = 'fits = as_printed == "RuntimeError"'
BEST = "free = cnn_turns.ratio(loops.TEXT"
ENDED = "by_task = {n: "
INSIDE = (
    "here = replace(here, tiny=False)\n"
    "last |= {(n, grid[1]): 0.5 for n, grid in RATES.items()}\n"
)
KILLED = "assert died.returncode != 0"

FAULTS = [
    # How does each program end, run exactly as it is printed?
    ("(x.to(device) for x in data)", "data", 'moved.count("to(device)") == 2'),
    before(
        "wants_cuda = [e.line",
        "import dataclasses\na[1] = dataclasses.replace(a[1], line=6)",
        "wants_cuda == (",
    ),
    before(
        "wants_cuda = [e.line",
        'import dataclasses\na[-1] = dataclasses.replace(a[-1], printed="0.5")',
        "(a[-1].error, a[-1].printed) ==",
    ),
    before("is_13b = parameters >", 'lacking.append("device")', '"A-5.1"'),
    ("used = ends", "used = 1 + ends", "(used > 0) == here.is_gpu"),
    before(IN_TWO, 'ends["two thousand"] = ends["b"][-1:]', '"[2,  2000] loss" in'),
    (IN_TWO, 'idle = b[-1].devices == ("cuda",)', 'claims.check("B-4.1"'),
    before(IN_TWO, "b = b[1:]", 'claims.check("B-4.4"'),
    before(IN_TWO, "lines[31] = 1", 'claims.check("B-4.5"'),
    (
        'there = [int(n) for n in re.findall(r"\\d+", programs.text("c"))]',
        "there = [12]",
        'claims.check("C-4.1"',
    ),
    (
        'errors = ["IndentationError", "ValueError"',
        'errors = ["SyntaxError", "ValueError"',
        'claims.check("C-4.2"',
    ),
    (
        "inspect.getsource(loops.Run)",
        "inspect.getsource(loops.fit)",
        "min(len(in_ours[name])",
    ),
    ('"a": "autocast', '"a": "zero_grad autocast', 'claims.check("A-5.7"'),
    ('"b": "autocast', '"b": "MaxPool2d autocast', 'claims.check("B-4.8"'),
    ('"c": "prune', '"c": "LargeModel prune', 'claims.check("C-4.4"'),
    # Is what runs also right?
    before(
        RIGHT,
        "counted = loops.evaluate(same_model, uneven[:-1])",
        "article_c == counted.accuracy == 0.9",
    ),
    before(RIGHT, "over_batches = article_c", "over_batches < 0.8"),
    before(RIGHT, "same_model.train()", "(still_trains, same_model.training) =="),
    before(RIGHT, 'off["items"] = off["parts"]', 'claims.check("A-5.6"'),
    before(RIGHT, "cleared = False", 'claims.check("A-5.6"'),
    before("learnt = after <", "after = before", 'claims.check("C-4.3"'),
    before("learnt = after <", "by_data = gradient(torch.clone)", 'claims.check("C-4.7"'),
    before("mends = [", "answers[32] = (64, 64)", 'claims.check("B-4.3"'),
    (
        'times = 13e9 / size["parameters"]',
        'times, sixteen_fold = 13e9 / size["parameters"], Ratio(1.0, aa=1.0)',
        "sixteen_fold.lies_in(",
    ),
    before(FITS, "swapped = criterion(scores.mT, labels * 0)", 'claims.check("A-5.4"'),
    before('times = 13e9 / size["parameters"]', 'size["flop"] *= 2', '"B-4.2"'),
    before(
        "inside = [min(", f'{INSIDE}last["SGD", 0.003] = 0.4', "here.tiny or all(inside)"
    ),
    before(
        "inside = [min(", f'{INSIDE}last["AdamW", 0.004] = 0.4', "here.tiny or all(inside)"
    ),
    before(
        "states = [round(",
        'runs["SGD", 0.01] = runs["AdamW", 0.001]',
        'claims.check("B-4.7"',
    ),
    before(
        'times = 13e9 / size["parameters"]',
        "stays = Ratio(5.0, aa=1.0)",
        "stays.lies_in(0.7, 2.5)",
    ),
    before(
        'times = 13e9 / size["parameters"]',
        "grows = Ratio(1.0, aa=1.0)",
        'claims.check("C-4.8"',
    ),
    # Which change makes a training faster, and which does not?
    before(
        BEST,
        "unit = Ratio(4.0, aa=1.0)\ncnn_turns.seconds[loops.TEXT] = [1.0] * 8\n"
        "cnn_turns.seconds.update({r.name: [0.5] * 8 for r in cnn})",
        "free.lies_in(4 if has_unit",
    ),
    before(
        BEST,
        "unit = Ratio(0.1, aa=1.0)\ncnn_turns.seconds[loops.TEXT] = [1.5] * 8\n"
        "cnn_turns.seconds.update({r.name: [0.5] * 8 for r in cnn})",
        "free.lies_in(4 if has_unit",
    ),
    before(
        BEST,
        "unit = Ratio(4.0, aa=1.0)\n"
        "gpt_turns.seconds.update({r.name: [0.5] * 8 for r in gpt})",
        "not has_unit or on_gpt.lies_in(1.6)",
    ),
    before(
        BEST,
        "unit = Ratio(4.0, aa=1.0)\n"
        "gpt_turns.seconds.update({r.name: [0.5] * 8 for r in gpt})\n"
        "gpt_turns.seconds[gpt[0].name] = [1.5] * 8\n"
        'gpt_gained["autocast"] = Ratio(0.9, aa=1.0)',
        "not has_unit or by_format.lies_in(1.3)",
    ),
    before(
        BEST,
        'unit, gpt_gained["autocast"] = Ratio(0.9, aa=1.0), Ratio(1.6, aa=1.0)',
        "not has_none or by_format.lies_in(0.001, 1.25)",
    ),
    before(
        "most = 1.25 / (1 - shares",
        'gained["batches cut at once"] = Ratio(1.6, aa=1.0)',
        "assert within is not False",
    ),
    ("states, low = 12 *", "states, low = 16 *", "states < low < 1.25 * states"),
    (
        "itself = cnn_turns.ratio(loops.TEXT, cnn[0].name)",
        "itself = Ratio(2.0, aa=1.0)",
        "itself.lies_in(0.75, 1.35)",
    ),
    before(ENDED, 'scored[0]["items"] = 900', "all test images are scored"),
    before(
        ENDED,
        'scored = [r | {"accuracy": -int("fused" in r["rung"])} for r in scored]',
        "high > low - 0.1",
    ),
    before(
        ENDED,
        "from dataclasses import replace\nhere = replace(here, tiny=False)\n"
        'scored = [r | {"accuracy": 0.1} for r in scored]',
        "here.tiny or tops[0] > 0.3",
    ),
    before(
        ENDED,
        'for row in scored:\n    row["loss"] *= 2 if row["rung"] == "plain" else 1',
        'abs(gpt_ends[-1]["loss"]',
    ),
    (
        'asked = gained["no .item() per step"]',
        "asked = Ratio(2.0, aa=1.0)",
        'claims.check("B-4.6"',
    ),
    before("fetched = copies if", "copy_s = 1e3 * step_s", 'claims.check("A-5.5"'),
    ("first, absent = gained[ranked[0]]", "first, absent = Ratio(1.0, aa=1.0)", '"B-S.1"'),
    # Can a run be killed at any moment, and come back to the same bits?
    (
        "source = inspect.getsource(loops.fit)",
        "source = inspect.getsource(loops.training)",
        'source.count("\\n") < 50',
    ),
    before(KILLED, "died.returncode = 0", "died.returncode != 0"),
    before(KILLED, 'kept["step"] = 40', 'kept["step"] == 50'),
    before(KILLED, 'died.stderr = ""', '"step 0 to 96" in died.stderr'),
    before(KILLED, "back.stderr = died.stderr", '"step 50 to 96" in back.stderr'),
    before("same = losses == whole_losses", "losses[-1] += 1e-6", "assert same,"),
    (
        'poor_losses, poor = scope["run"](folder)',
        'poor_losses, poor = scope["run"](folder, file=None)',
        "not poor_same",
    ),
    before(KILLED, "poor_losses[2] = 9.0", "poor_losses[:5] == whole_losses[:5]"),
    before(KILLED, "held /= 2", "12 <= held < 12.5"),
    before(KILLED, "ruined = 1", "ruined == 4"),
    (
        "    loops.fit(model, adam, data, scope",
        "    data = torch.utils.data.TensorDataset(*thousand)\n"
        "    loops.fit(model, adam, data, scope",
        '"nan in steps" in str(caught)',
    ),
    before(KILLED, "sound = False", "assert sound,"),
    ("if 699 in b", "if 1 in b", "at == (ran_into - 1) // 5 * 5"),
    # Your turn
    ("my_scores = None", "my_scores = (0.9, 0.904)", "off_by < 1e-3"),
    ("my_steps = None", "my_steps = 125", "my_steps is None"),
    (
        "outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten()",
        "outputs.flatten(0, 1), labels.flatten()",
        "torch.isclose((my_loss or shifted)",
    ),
]
