"""What ε and δ mean for somebody who guesses."""

import math

ALL_BUT_CERTAIN = 0.99995  #: shares above are called certain


def certainty(epsilon: float, delta: float) -> float:
    """Share of right guesses between two neighbours that were equally likely, at most.

    Examples
    --------
    >>> round(certainty(1.0, 0.0), 3)
    0.731
    """
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def odds(epsilon: float) -> str:
    """The factor e^ε by which odds can change, readable.

    Examples
    --------
    >>> odds(1.0), odds(500.0)
    ('2.7', 'more than a million')
    """
    if epsilon > math.log(1e6):
        return "more than a million"
    factor = math.exp(epsilon)
    return f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}"


def best_guess(epsilon: float, delta: float) -> str:
    """Certainty that a coin flip can grow to: (e^ε + δ) / (1 + e^ε), in percent.

    With equal prior odds the share of right guesses between two neighbouring data sets is at most
    this, whatever the attacker knows and computes.

    Examples
    --------
    >>> best_guess(1.0, 0.0), best_guess(8.0, 0.0), best_guess(400.0, 0.0)
    ('73.1 %', '99.97 %', 'practically 100 %')
    """
    share = certainty(epsilon, delta)
    if share > ALL_BUT_CERTAIN:
        return "practically 100 %"
    return f"{100 * share:.{1 if share < 0.99 else 2}f} %"
