"""How a figure of this book looks: one size, a panel of its own, lines told apart twice."""

import os

#: Okabe-Ito colours that keep 3:1 against the panel, each with a marker and a dash.
LINES = [
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    {"color": "#007A5A", "marker": "^", "linestyle": "-."},
    {"color": "#A85583", "marker": "D", "linestyle": ":"},
    {"color": "#7A6000", "marker": "v", "linestyle": (0, (5, 1))},
    {"color": "#333333", "marker": "P", "linestyle": (0, (1, 1))},
]
MUTED = "#5A5A5A"  # bounds and reference lines
_STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "figure.facecolor": "white",  # a light panel in the dark theme too
    "savefig.facecolor": "white",
    "figure.dpi": 110,
    "legend.frameon": False,
}


class Undrawn:
    """Takes any call and draws nothing: a lab records where matplotlib is missing.

    >>> ax = Undrawn()
    >>> bars, labels = ax.get_legend_handles_labels()
    >>> len(labels), bool(ax.plot([1], [2]))
    (0, False)
    """

    def __getattr__(self, name: str) -> "Undrawn":
        return self

    def __call__(self, *args, **options) -> "Undrawn":
        return self

    def __getitem__(self, index) -> "Undrawn":
        return self

    def __iter__(self):
        return iter((self, self))  # of two: a figure and its axes, handles and labels

    def __len__(self) -> int:
        return 0


def figure(
    xlabel: str, ylabel: str, *, log: str = "", width: float = 7, height: float = 4.2
):
    """An empty figure and its axes: labels with units, `log` = "x", "y" or "xy".

    >>> fig, ax = figure("bytes read", "seconds", log="xy")
    >>> ax.get_xscale(), ax.get_ylabel()
    ('log', 'seconds')
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        if os.environ.get("GPULAB_RECORD"):  # rows are wanted, nobody looks
            return Undrawn(), Undrawn()
        raise
    with plt.rc_context(_STYLE):
        fig, ax = plt.subplots(figsize=(width, height), layout="constrained")
        shows = plt.isinteractive()
    # Jupyter turned that on with the first figure; undone, no second one would be shown.
    plt.interactive(shows)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    return fig, ax


def rows_of(run, kind: str) -> list[dict]:
    """The rows of one kind, in the order in which they were recorded."""
    return [row for row in run.rows if row.get("kind") == kind]


def of_kind(runs: list, kind: str) -> list[tuple[str, list[dict]]]:
    """(device, rows of that kind) of the runs that have any; `ValueError` if none has.

    >>> from types import SimpleNamespace as Run
    >>> of_kind([Run(label="a CPU", rows=[{"kind": "hold"}, {"kind": "read"}])], "hold")
    [('a CPU', [{'kind': 'hold'}])]
    """
    found = [(run.label, rows_of(run, kind)) for run in runs]
    if not any(rows for _, rows in found):
        seen = sorted({str(r.get("kind")) for run in runs for r in run.rows})
        raise ValueError(f"no row of kind {kind!r} to draw, there are {seen}")
    return [(label, rows) for label, rows in found if rows]


def legend(ax) -> None:
    """The legend, outside the data where there is much of it."""
    _, labels = ax.get_legend_handles_labels()
    if len(labels) > 3:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    elif labels:
        ax.legend(loc="best", frameon=False)
