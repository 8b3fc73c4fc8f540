"""The command line: what it prints, and one line with status 2 for a wrong question."""

import json
import subprocess
import sys

from gpulab_utils import CARDS, MODELS, cli

import pytest
from lab_files import ROOT


def test_a_card_is_shown_with_its_usable_memory_and_sources(capsys):
    assert cli.main(["cards", "rtx-3080-ti"]) == 0
    said = capsys.readouterr().out
    assert "GeForce RTX 3080 Ti (NVIDIA Ampere, 8.6)" in said
    assert "10.86 GiB beside a desktop, 11.31 GiB headless" in said  # 0.98 * 12 - 0.9
    assert "912 GB/s" in said  # 384 bit * 19 Gbit/s / 8
    assert "source     https://" in said


def test_every_card_has_a_line_and_an_entry(capsys):
    assert cli.main(["cards"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CARDS)
    assert head.split()[:3] == ["card", "GiB", "usable"]
    assert cli.main(["cards", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == list(CARDS)
    assert all(row["sources"] and row["usable_bytes"]["headless"] > 0 for row in rows)


def test_one_card_as_json(capsys):
    assert cli.main(["cards", "mi300x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gfx_target"] == "gfx942"


def test_models_and_claims_are_listed(capsys):
    assert cli.main(["models"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in MODELS)
    assert "13,015,864,320" in said
    assert cli.main(["claims"]) == 0
    assert "A-1.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["cards", "rtx-3080-tii"], "no card 'rtx-3080-tii'; nearest: rtx-3080-ti"),
        (["claims", "A-99"], "no claim 'A-99'; nearest: A-"),
        (["record", "77"], "no lab '77'"),
        (["record", "--seconds", "-1"], "--seconds must be positive, got -1"),
    ],
)
def test_a_wrong_question_gets_one_line(argv, message, capsys):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("gpulab: ")


def test_help_is_for_a_person(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for command in ("doctor", "cards", "models", "record"):
        assert f"    {command}" in said
    assert "examples:" in said


@pytest.mark.parametrize("argv", [[], ["cook"]])
def test_no_command_or_an_unknown_one_is_refused(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_output_may_be_cut_short():
    line = f"{sys.executable} -m gpulab_utils cards --json | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_tables_need_no_torch():
    code = "import sys; from gpulab_utils import cli; cli.main(['cards']);"
    code += "cli.main(['models']); cli.main(['claims']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_every_command_can_be_run():
    commands = next(a for a in cli.parser()._actions if isinstance(a.choices, dict)).choices
    assert {"doctor", "cards", "models", "claims", "record"} <= commands.keys()
    for name, command in commands.items():
        assert callable(command.get_default("run")), f"{name} does not set run"
        assert command.description, f"{name} does not say what it is for"
