"""What makes lab 16 wrong, and the check that must see it."""


def before(anchor: str, planted: str, check: str) -> tuple[str, str, str]:
    """A fault that is planted in front of what stands in the lab."""
    return anchor, f"{planted}\n{anchor}", check


A_ENDS = 'a, b, c = (ends[name] for name in "abc")'
IN_TWO = 'idle = b[-1].devices == ("cpu",)'
RIGHT = "ordered = off["
FITS = 'fits = as_printed == "RuntimeError"'
BEST = "_, best = fastest(cnn_turns, cnn)"
ENDED = "ended = {(r["
KILLED = "ended, tensors = died.returncode"

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
        "len([w for w in words",
    ),
    ('"a": "autocast', '"a": "zero_grad autocast', 'claims.check("A-5.7"'),
    ('"b": "autocast', '"b": "MaxPool2d autocast', 'claims.check("B-4.8"'),
    ('"c": "prune', '"c": "LargeModel prune', 'claims.check("C-4.4"'),
    # Is what runs also right?
    (
        "adam.zero_grad()\nassert",
        "adam.zero_grad(set_to_none=False)\nassert",
        "all(p.grad is None for p in net.parameters())",
    ),
    before(
        RIGHT,
        "counted = loops.evaluate(same_model, uneven[:-1])",
        "article_c == counted.accuracy == 0.9",
    ),
    before(RIGHT, "over_batches = article_c", "over_batches < 0.8"),
    before(RIGHT, "same_model.train()", "(still_trains, same_model.training) =="),
    before(RIGHT, 'off["items"] = off["parts"]', 'claims.check("A-5.6"'),
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
        "not has_unit or free.lies_in(4)",
    ),
    before(
        BEST,
        "unit = Ratio(4.0, aa=1.0)\n"
        "gpt_turns.seconds.update({r.name: [0.5] * 8 for r in gpt})",
        "not has_unit or on_gpt.lies_in(1.6)",
    ),
    before(
        BEST,
        "unit = Ratio(0.9, aa=1.0)\n"
        "gpt_turns.seconds.update({r.name: [0.5] * 8 for r in gpt})\n"
        "gpt_turns.seconds[gpt[0].name] = [1.5] * 8",
        "not has_none or on_gpt.lies_in(0.2, 1.6)",
    ),
    ("states = 12 * sum(", "states = 16 * sum(", "states < on_cpu < 1.25 * states"),
    (
        "itself = cnn_turns.ratio(loops.TEXT, cnn[0].name)",
        "itself = Ratio(2.0, aa=1.0)",
        "itself.lies_in(0.75, 1.35)",
    ),
    ('items = {"cnn": 1000', 'items = {"cnn": 900', 'high["items"] == 1000'),
    before(
        ENDED,
        'scored = [r | {"accuracy": -(r["rung"] == alike["cnn"][-1])} for r in scored]',
        'high["accuracy"] > low["accuracy"] - 0.1',
    ),
    before(
        ENDED,
        "from dataclasses import replace\nhere = replace(here, tiny=False)\n"
        'scored = [r | {"accuracy": 0.1} for r in scored]',
        'here.tiny or top["accuracy"] > 0.3',
    ),
    before(
        ENDED,
        'for row in scored:\n    row["loss"] *= 2 if row["rung"] == alike["gpt"][0] else 1',
        "abs(high - low) < 0.2",
    ),
    (
        'asked = cnn_turns.ratio("batches cut at once", "no .item() per step")',
        "asked = Ratio(2.0, aa=1.0)",
        'claims.check("B-4.6"',
    ),
    before("fetched = copies if", "copy_s = 1e3 * step_s", 'claims.check("A-5.5"'),
    ('first = gains["cnn"][ranked[0]]', "first = Ratio(1.0, aa=1.0)", '"B-S.1"'),
    # Can a run be killed at any moment, and come back to the same bits?
    (
        "source = inspect.getsource(loops.fit)",
        "source = inspect.getsource(loops.training)",
        'source.count("\\n") < 50',
    ),
    (KILLED, KILLED.replace("died", "back"), "ended != 0"),
    before(KILLED, 'kept["step"] = 40', 'kept["step"] == 50'),
    before(KILLED, 'died.stderr = ""', '"step 0 to 96" in died.stderr'),
    before(KILLED, "back.stderr = died.stderr", '"step 50 to 96" in back.stderr'),
    (
        "back = launch(folder)",
        'torch.save(kept | {"cpu": torch.get_rng_state()}, f"{folder}/kept.pt")\n'
        "back = launch(folder)",
        "assert same,",
    ),
    (
        'poor_losses, poor = scope["run"](folder)',
        'poor_losses, poor = scope["run"](folder, file=None)',
        "not poor_same",
    ),
    before(KILLED, "poor_losses[2] = 9.0", "poor_losses[:5] == whole_losses[:5]"),
    before(KILLED, "held /= 2", "12 <= held < 12.5"),
    before(KILLED, "ruined = 1", "ruined == tensors"),
    (
        "    loops.fit(model, adam, data, scope",
        "    data = torch.utils.data.TensorDataset(*thousand)\n"
        "    loops.fit(model, adam, data, scope",
        '"nan in steps" in str(caught)',
    ),
    before(KILLED, "sound = False", "assert sound,"),
    ("if 699 in b", "if 1 in b", "at == (ran_into - 1) // 5 * 5"),
    # Your turn
    ("my_scores = None", "my_scores = (0.9, 0.904)", "my_scores is None"),
    ("my_steps = None", "my_steps = 125", "my_steps is None"),
    (
        "outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten()",
        "outputs.flatten(0, 1), labels.flatten()",
        "torch.isclose((my_loss or shifted)",
    ),
]
