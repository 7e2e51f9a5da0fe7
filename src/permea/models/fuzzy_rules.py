"""Fuzzy rules and explanations that a person can read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from permea.models.base import Array

_SHOWN = 4  # features named in a printed rule


@dataclass(frozen=True)
class FuzzyRule:
    """If the input is near ``centre`` then the output is ``consequent`` (002 section 2.2.1.1).

    Printing a rule names the features of its centre that differ most from the average centre.
    """

    index: int  #: number of the rule
    centre: Array  #: rule centre in the original features
    consequent: Array  #: c_m, one number per output
    output: Array  #: what the whole system answers at the centre
    members: int  #: training rows that are nearer to this rule than to any other
    typical: Array  #: average of all rule centres, against which a centre is told apart
    fulfilment: float | None = None  #: normalised degree of fulfilment for a query
    names: tuple[str, ...] | None = None  #: names of the features

    def __str__(self) -> str:
        prominent = np.argsort(-np.abs(self.centre - self.typical), kind="stable")[:_SHOWN]
        names = self.names or tuple(f"x{k}" for k in range(self.centre.size))
        condition = ", ".join(f"{names[k]} ≈ {self.centre[k]:.3g}" for k in sorted(prominent))
        degree = "" if self.fulfilment is None else f", fulfilled to {self.fulfilment:.1%}"
        if self.output.size <= _SHOWN:
            answer = ", ".join(f"{value:.3g}" for value in self.output)
        else:
            answer = f"a point with {self.output.size} features near that centre"
        return (
            f"rule {self.index} ({self.members} training rows{degree}): "
            f"if {condition} then {answer}"
        )


@dataclass(frozen=True)
class FuzzyExplanation:
    """Why a fuzzy autoencoder accepts or rejects one point.

    ``membership`` is the degree to which the point belongs (2.162), ``distance`` how far it is from
    its image, and ``rules`` are those that the point fulfils most, each with its region: the
    training rows that are nearest to its centre.
    """

    membership: float
    distance: float
    rules: tuple[FuzzyRule, ...]  #: most fulfilled first
    covered: float  #: share of all degrees of fulfilment that these rules hold

    def __str__(self) -> str:
        lines = [
            f"membership {self.membership:.4f}, distance to its image {self.distance:.4g}; "
            f"{len(self.rules)} rules hold {self.covered:.1%} of all fulfilment:"
        ]
        return "\n".join(lines + [f"  {rule}" for rule in self.rules])


def build_rules(
    centres: Array,
    consequents: Array,
    outputs: Array,
    members: NDArray[np.intp],
    degrees: Array | None = None,
    names: Sequence[str] | None = None,
) -> list[FuzzyRule]:
    """Assemble the rules of a layer; most fulfilled first when ``degrees`` are given."""
    typical = np.asarray(np.average(centres, axis=0, weights=np.maximum(members, 1)))
    labels = None if names is None else tuple(names)
    rules = [
        FuzzyRule(
            index=m,
            centre=centres[m],
            consequent=consequents[m],
            output=outputs[m],
            members=int(members[m]),
            typical=typical,
            fulfilment=None if degrees is None else float(degrees[m]),
            names=labels,
        )
        for m in range(len(centres))
    ]
    if degrees is not None:
        rules.sort(key=lambda rule: -(rule.fulfilment or 0.0))
    return rules
