"""Directives that write a table from the package's data."""


def setup(app) -> None:
    pass
