"""How good was the guess? A number is written down before the run, and held to it after."""


def reveal(guess: float | None, found: float, unit: str = "") -> None:
    """Print what was found and, where a guess was written down, the ratio of the two.

    >>> reveal(100, 130, "million")
    Found: 130 million. Your guess of 100 is 0.77 times that.
    >>> reveal(None, 16.0)
    Found: 16. No guess was written down.
    """
    words = f"Found: {found:,.4g} {unit}".rstrip() + "."
    if guess is None:
        print(f"{words} No guess was written down.")
    else:
        print(f"{words} Your guess of {guess:,.4g} is {guess / found:.2g} times that.")
