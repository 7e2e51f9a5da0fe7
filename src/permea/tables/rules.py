"""Rules between columns that everybody knows before seeing a row: ``a >= b``, ``a = b + c``.

They are declared in a `Schema` as text, and hold for positions: numbers, and dates as days. Where a
value is missing, a rule says nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from permea._arrays import Array, Mask

_FORM = re.compile(r"(.+?)\s+(>=|<=|=)\s+(.+)")


@dataclass(frozen=True)
class Rule:
    """One rule: ``left`` is at least, or is, the sum of ``right``.

    Examples
    --------
    >>> rule = Rule.parse("total = food + rent")
    >>> rule.right
    ('food', 'rent')
    >>> columns = {"total": np.array([5.0, 5.0]), "food": np.ones(2), "rent": np.array([4.0, 3])}
    >>> rule.holds(columns).tolist()
    [True, False]
    """

    left: str
    is_sum: bool
    right: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read ``a >= b``, ``a <= b`` or ``a = b + c``, with blanks around the signs."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError("a rule has the form 'a >= b', 'a <= b' or 'a = b + c'")
        left, sign, rest = found.groups()
        right = tuple(re.split(r"\s+\+\s+", rest.strip()))
        if sign != "=" and len(right) > 1:
            raise ValueError("a sum stands behind '=' alone, as in 'a = b + c'")
        if sign == "<=":
            left, right = right[0], (left,)
        return cls(left, sign == "=", right)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rule is about."""
        return (self.left, *self.right)

    def can_hold(self, ranges: Mapping[str, tuple[float, float]]) -> bool:
        """Whether some values in these ranges keep the rule.

        Examples
        --------
        >>> Rule.parse("a >= b").can_hold({"a": (0.0, 1.0), "b": (5.0, 6.0)})
        False
        """
        low, high = (sum(ranges[name][end] for name in self.right) for end in (0, 1))
        return ranges[self.left][1] >= low and (not self.is_sum or ranges[self.left][0] <= high)

    def holds(self, columns: Mapping[str, Array]) -> Mask:
        """Whether each row keeps the rule; a sum is compared with a margin for rounding."""
        left, right = columns[self.left], sum(columns[name] for name in self.right)
        known = ~np.isnan(left + right)
        apart = left - right
        margin = 1e-9 * np.maximum(np.abs(left), 1.0)
        kept = np.abs(apart) <= margin if self.is_sum else apart >= -margin
        return np.asarray(~known | kept)

    def repaired(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """The columns with the two values in the declared order, or with the sum put in its place.

        A value may leave the range of its column by that, or its steps.

        Examples
        --------
        >>> Rule.parse("out >= in").repaired({"in": np.array([9.0]), "out": np.array([4.0])})
        {'in': array([4.]), 'out': array([9.])}
        """
        out = dict(columns)
        left, right = columns[self.left], sum(columns[name] for name in self.right)
        wrong = ~self.holds(columns)
        out[self.left] = np.where(wrong, right, left)
        if not self.is_sum:
            out[self.right[0]] = np.where(wrong, left, right)
        return out
