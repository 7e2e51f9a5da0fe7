"""What the parties of a federation of moments agree on, as a document that owners sign.

Public objects (features, settings) enter it as canonical descriptions: two processes give the same
description exactly when they hold the same classes, parameters and arrays. Nothing is ever built
from a description.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator

from permea.federation.errors import SchemaError
from permea.federation.party import checked_name
from permea.federation.schema import Label
from permea.models.features import FeatureMap
from permea.privacy.composition import Loss, tight_epsilon
from permea.privacy.moments import MomentPlan, Neighbours, Split, plan_moments
from permea.privacy.signing import Signature, SigningKey, TrustedKeys, canonical
from permea.privacy.units import Privacy
from permea.storage.container import parse_json

_DEEPEST = 20  # objects inside objects
_LARGEST_TEXT = 1 << 24


def canonical_description(value: Any, depth: int = 0) -> Any:
    """Plain JSON values that identify ``value`` in every process.

    Feature maps of permea are described by class and parameters, because they depend on nothing
    else; other transformers by what fitting left in them as well. Arrays become digests.

    Examples
    --------
    >>> from permea.models.features import RandomFourier
    >>> canonical_description(RandomFourier(n_frequencies=5))
    {'class': 'RandomFourier', 'parameters': {'n_frequencies': 5, 'scale': 1.5, 'seed': 0}}
    >>> canonical_description(object())
    Traceback (most recent call last):
        ...
    TypeError: An object of type object has no description that another process would recognise...
    """
    if depth > _DEEPEST:
        raise TypeError("The features are nested too deeply, or contain themselves.")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | np.number | np.bool_):
        return _number(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list | tuple | range):
        return [canonical_description(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: canonical_description(value[name], depth + 1) for name in sorted(value)}
    if isinstance(value, Mapping):  # such as weights of classes
        pairs = [canonical_description(pair, depth + 1) for pair in value.items()]
        return {"pairs": sorted(pairs, key=repr)}
    return _object(value, depth)


def plain_number(name: str, value: Any) -> float:
    """A finite float; texts and booleans are refused.

    Examples
    --------
    >>> plain_number("radius", 1)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ValueError(f"{name} must be a number.")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite.")
    return number


def parsed_object(text: Any) -> dict[str, Any]:
    """Read a JSON object of an ordinary size, in which no entry occurs twice.

    Examples
    --------
    >>> parsed_object('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: a name occurs twice
    """
    if not isinstance(text, str) or len(text) > _LARGEST_TEXT:
        raise ValueError("expected a JSON text of an ordinary size.")
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("expected a JSON object.")
    return values


def _number(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)  # JSON has no infinity
    if not isinstance(plain, bool | int | float):
        raise TypeError("Complex numbers have no description.")
    return plain


def _array(value: Any) -> dict[str, Any]:
    if value.dtype.hasobject:
        return {"array": "object", "values": canonical_description(value.tolist())}
    data = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    return {"array": data.dtype.str, "shape": list(data.shape), "sha256": digest}


def _object(value: Any, depth: int) -> dict[str, Any]:
    """Classes by name, functions by name, and the attributes of objects."""
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, np.ufunc):
        return {"function": f"numpy.{value.__name__}"}
    if callable(value) and hasattr(value, "__qualname__"):
        function = f"{value.__module__}.{value.__qualname__}"
        if "<" not in function:  # lambdas and local functions have no name of their own
            return {"function": function}
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        described = canonical_description(parameters, depth + 1)
        if isinstance(value, FeatureMap) and kind.__module__ == FeatureMap.__module__:
            return {"class": kind.__name__, "parameters": described}
        fitted = {held: vars(value)[held] for held in vars(value) if held not in parameters}
        fitted = canonical_description(fitted, depth + 1)
        return {"class": name, "parameters": described, "fitted": fitted}
    if not callable(value) and getattr(value, "__dict__", None):
        return {"class": name, "holds": canonical_description(vars(value), depth + 1)}
    raise TypeError(
        f"An object of type {kind.__name__} has no description that another process would "
        "recognise. Use feature maps of permea.models.features, fitted scikit-learn transformers, "
        "or functions with a name of their own."
    )


Noise = Literal["shared", "own"]
SCHEMA = "permea agreement 2"
PURPOSE = "agreement"  # what a signature on an agreement is for
MOST_PARTIES = 2**16
MOST_ROUNDS = 1000
MOST_COLUMNS = 10**6
MOST_LOSSES = 1000
_LOCAL = ("ledger", "dataset", "random_state")  # what parties need not agree on
_ENTRIES = ("privacy", "features", "neighbours", "classes", "output_domain", "radius",
            "feature_norm", "split")  # parameters with an entry of their own  # fmt: skip
_WRONG = (TypeError, ValueError, OverflowError, AttributeError, RecursionError)


class AgreementError(SchemaError):
    """A document is no agreement, is not signed by a trusted key, or is not the agreed one."""


def collusion_epsilon(
    plan: MomentPlan, *, noise_shares: int, n_parties: int, colluding: int
) -> float:
    """The ε that is left when parties subtract their own shares of the noise.

    Each of ``n_parties`` added a share of variance σ²/``noise_shares``. Colluding parties know
    their own shares, so the noise on the rows of the others has the variance
    (``n_parties`` - ``colluding``) σ²/``noise_shares``. With one honest party this is also what
    holds against a reader of a single message before it was added to the others.

    Parameters
    ----------
    plan : MomentPlan
        The release, with the claimed ε and δ.
    noise_shares : int
        Number of shares the noise was cut into.
    n_parties, colluding : int
        Parties that replied, and how many of them share their noise.

    Returns
    -------
    float
        ε per unit of the plan at its δ, under its neighbours.

    Examples
    --------
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> plan = plan_moments(promise, 100, 10)
    >>> for n in (2, 5, 10, 50):
    ...     left = collusion_epsilon(plan, noise_shares=n, n_parties=n, colluding=n - 1)
    ...     print(n, f"{left:.2f}")
    2 1.47
    5 2.44
    10 3.62
    50 9.36
    """
    honest = n_parties - colluding
    if noise_shares < 1 or colluding < 0 or honest < 1:
        raise ValueError("At least one share and one honest party are needed.")
    missing = noise_shares / honest  # the variance is smaller than agreed by this factor
    loss = plan.loss
    widened = Loss(
        "gaussian", loss.value * math.sqrt(missing), 1, loss.delta, loss.slack * max(1.0, missing)
    )
    return tight_epsilon([widened], plan.privacy.delta)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What all parties of a federation of moments have agreed on.

    Make one with `Agreement.of`, let owners sign it with `signed`, send it as JSON.

    Parameters
    ----------
    model : str
        Class of the estimator.
    settings : str
        Canonical JSON of its settings that matter after the release only.
    features : str
        Canonical JSON of the public feature map: classes, parameters, digests of arrays.
    n_columns, n_features : int
        Columns of the rows, and features that the map makes of them.
    classes : tuple of labels or None
        The declared classes, for classification.
    output_domain : (low, high) or None
        The declared range of the outputs, for regression.
    n_targets : int
        Outputs per row; 1 for classification.
    privacy : Privacy
        ε, δ, unit, domain and mechanism of one round.
    neighbours, radius, feature_norm, split
        As for `MomentClassifier`.
    n_directions, n_losses : int
        What follows the moments (`permea.privacy.scatter`); 0 for nothing.
    noise : {"shared", "own"}
        "shared": a party adds one of ``noise_shares`` shares of the noise; "own": all of it.
    noise_shares : int
        Number of shares: the least number of parties that must not collude for the promise to hold
        as it is written; 1 for own noise.
    least_parties : int
        Parties that must reply, at least ``noise_shares``.
    rounds : int
        Number of rounds; each is charged to the ledger of every party.
    parties : tuple of str
        Names of all parties.
    signatures : tuple of Signature
        On everything above; not part of `digest`.

    Examples
    --------
    >>> from permea import MomentClassifier
    >>> promise = Privacy(epsilon=1, delta=1e-5, unit="record", domain=(0, 1))
    >>> wanted = MomentClassifier(privacy=promise, features="identity", classes=[0, 1])
    >>> agreement = Agreement.of(wanted, n_columns=3, parties=["a", "b", "c"], rounds=2)
    >>> agreement.noise_shares, agreement.least_parties
    (3, 3)
    >>> key = SigningKey.generate("owner")
    >>> signed = Agreement.from_json(agreement.signed(by=key).to_json())
    >>> signed.signers(TrustedKeys([key.public])), signed.digest == agreement.digest
    (('owner',), True)
    """

    model: str
    settings: str
    features: str
    n_columns: int
    n_features: int
    classes: tuple[Label, ...] | None
    output_domain: tuple[Any, Any] | None
    n_targets: int
    privacy: Privacy
    neighbours: Neighbours
    radius: float
    feature_norm: float
    split: tuple[float, float, float, float]
    n_directions: int
    n_losses: int
    noise: Noise
    noise_shares: int
    least_parties: int
    rounds: int
    parties: tuple[str, ...]
    signatures: tuple[Signature, ...] = ()

    def __post_init__(self) -> None:
        try:
            self._check_numbers()
            self._check_parties()
            self._check_outputs()
            for name in ("settings", "features"):
                self._set(name, canonical(parsed_object(getattr(self, name))).decode())
            if not isinstance(self.privacy, Privacy):
                raise ValueError("privacy must be a Privacy.")
            declared = None if self.privacy.domain is None else self.privacy.n_columns
            if declared not in (None, self.n_columns):
                raise ValueError("the domain is declared for another number of columns.")
            self._set("privacy", self.plan.privacy)  # names the mechanism that is used
            assert self.digest  # everything can be serialised
        except _WRONG as error:
            raise AgreementError(f"Not an agreement: {error}") from error

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_numbers(self) -> None:
        limits = {
            "n_columns": MOST_COLUMNS, "n_features": MOST_COLUMNS, "n_targets": MOST_COLUMNS,
            "noise_shares": MOST_PARTIES, "least_parties": MOST_PARTIES, "rounds": MOST_ROUNDS,
            "n_directions": MOST_COLUMNS, "n_losses": MOST_LOSSES,
        }  # fmt: skip
        for name, most in limits.items():
            value, least = getattr(self, name), int(name not in ("n_directions", "n_losses"))
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}.")
        for name in ("radius", "feature_norm"):
            self._set(name, plain_number(name, getattr(self, name)))
        if not isinstance(self.split, tuple | list):
            raise ValueError("split must be four numbers.")
        self._set("split", tuple(plain_number("split", share) for share in self.split))

    def _check_parties(self) -> None:
        names = self.parties
        if not isinstance(names, tuple) or not 1 <= len(names) <= MOST_PARTIES:
            raise ValueError("parties must name the parties, each by a text.")
        if not all(checked_name(name).isprintable() for name in names):
            raise ValueError("the name of a party has characters that cannot be printed.")
        if len(set(names)) < len(names):
            raise ValueError("two parties have the same name.")
        if self.noise not in get_args(Noise):
            raise ValueError("noise must be 'shared' or 'own'.")
        if self.noise == "own" and self.noise_shares != 1:
            raise ValueError("own noise is not cut into shares: noise_shares must be 1.")
        if not self.noise_shares <= self.least_parties <= len(names):
            raise ValueError(
                "noise_shares must be at most least_parties, and that at most the number of "
                f"parties; got {self.noise_shares}, {self.least_parties} and {len(names)}. With "
                "fewer parties than shares there would be less noise than promised."
            )

    def _check_outputs(self) -> None:
        if not isinstance(self.model, str) or not self.model.isidentifier():
            raise ValueError("model must be the name of a class.")
        if (self.classes is None) == (self.output_domain is None):
            raise ValueError("either classes or output_domain must be declared, not both.")
        if self.output_domain is not None:
            low, high = (_ends(end) for end in self.output_domain)
            q = self.n_targets
            if not np.all(np.broadcast_to(low, (q,)) < np.broadcast_to(high, (q,))):
                raise ValueError("output_domain needs low < high for every output.")
            self._set("output_domain", (low, high))
            return
        assert self.classes is not None
        if not all(isinstance(label, Label) for label in self.classes):
            raise ValueError("classes must be numbers or texts.")
        if len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError("classes must be at least two different labels.")
        if self.n_targets != 1:
            raise ValueError("n_targets must be 1 for classification.")

    @classmethod
    def of(
        cls,
        estimator: Any,
        n_columns: int,
        *,
        parties: Sequence[str],
        noise: Noise = "shared",
        noise_shares: int | None = None,
        least_parties: int | None = None,
        rounds: int = 1,
        n_targets: int = 1,
    ) -> Self:
        """The agreement under which ``estimator`` learns from rows of ``n_columns``; reads no row.

        Parameters
        ----------
        estimator : MomentClassifier or MomentRegressor
            Not fitted, with ``privacy``, and ``classes`` or ``output_domain``. Its ``ledger``,
            ``dataset`` and ``random_state`` are chosen by each party.
        n_columns : int
            Columns of the rows.
        parties : sequence of str
            Names of the parties.
        noise : {"shared", "own"}, default="shared"
            Shares that suffice together, or all of the noise from every party.
        noise_shares : int, optional
            Number of shares; by default ``least_parties`` (1 for own noise). One less for every
            party that may collude.
        least_parties : int, optional
            Parties that must reply; by default all.
        rounds : int, default=1
            Rounds allowed.
        n_targets : int, default=1
            Outputs per row.
        """
        parameters = estimator.get_params(deep=False)
        own = type(estimator)(**{**parameters, **dict.fromkeys(_LOCAL)})
        plan = own.prepare(n_columns, n_targets)
        if plan.n_gradients:
            raise ValueError(
                "Parties add up moments, and gradients of the logistic loss are not part of a "
                "round: use loss='squared' or 'auto'."
            )
        least = len(parties) if least_parties is None else least_parties
        shares = (1 if noise == "own" else least) if noise_shares is None else noise_shares
        classes = getattr(own, "classes_", None)
        rest = {n: parameters[n] for n in set(parameters) - {*_ENTRIES, *_LOCAL}}
        return cls(
            model=type(estimator).__name__,
            settings=canonical(canonical_description(rest)).decode(),
            features=canonical(canonical_description(own.map_)).decode(),
            n_columns=n_columns, n_features=plan.n_features,
            classes=None if classes is None else tuple(np.asarray(classes).tolist()),
            output_domain=parameters.get("output_domain"),
            n_targets=n_targets, privacy=plan.privacy, neighbours=plan.neighbours,
            radius=plan.radius, feature_norm=plan.feature_norm, split=tuple(plan.split),
            n_directions=plan.n_directions, n_losses=plan.n_losses,
            noise=noise, noise_shares=shares, least_parties=least, rounds=rounds,
            parties=tuple(parties),
        )  # fmt: skip

    @cached_property
    def plan(self) -> MomentPlan:
        """The noise of one round, worked out from this document alone."""
        return plan_moments(
            self.privacy,
            self.n_features,
            1 + self.n_targets if self.classes is None else len(self.classes),
            outputs="numbers" if self.classes is None else "classes",
            neighbours=self.neighbours,
            radius=self.radius,
            feature_norm=self.feature_norm,
            split=Split(*self.split),
            n_directions=self.n_directions,
            n_losses=self.n_losses,
            weighted=isinstance(json.loads(self.settings).get("class_weight"), dict),
        )

    # ---- as a document ---------------------------------------------------------------------------

    def _document(self) -> dict[str, Any]:
        """Plain values of everything but the signatures."""
        names = [field.name for field in fields(self) if field.name != "signatures"]
        values = {name: getattr(self, name) for name in names}
        values["privacy"] = self.privacy.to_dict()
        for name in ("settings", "features"):
            values[name] = json.loads(values[name])
        document: dict[str, Any] = json.loads(canonical({"schema": SCHEMA, **values}))
        return document

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the document without its signatures: what a request must name."""
        return hashlib.sha256(canonical(self._document())).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**self._document(), "signatures": [one.to_dict() for one in self.signatures]}

    def to_json(self) -> str:
        """JSON for a file or a message."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read `to_dict`; anything that is missing, unknown or impossible is refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != {"schema", *names}:
            raise AgreementError("Not an agreement: entries are missing or unknown.")
        if values["schema"] != SCHEMA:
            raise AgreementError(f"Not an agreement of this version: expected {SCHEMA!r}.")
        try:
            known = {name: _tupled(values[name]) for name in names}
            for name in ("settings", "features"):
                known[name] = canonical(values[name]).decode()
            known["privacy"] = Privacy.from_dict(dict(values["privacy"]))
            known["signatures"] = tuple(Signature.from_dict(one) for one in values["signatures"])
            written = canonical(dict(values))
        except _WRONG as error:
            raise AgreementError(f"Not an agreement: {error}") from error
        made = cls(**known)
        if canonical(made.to_dict()) != written:
            raise AgreementError(
                "Not an agreement: its values are not written as permea writes them, so the signed "
                "document would differ from the one in use. Write it with to_json."
            )
        return made

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `to_json`."""
        try:
            values = parsed_object(text)
        except ValueError as error:
            raise AgreementError(f"Not an agreement: {error}") from error
        return cls.from_dict(values)

    def signed(self, *, by: SigningKey) -> Self:
        """The same agreement with one more signature on it."""
        made = by.sign(canonical(self._document()), purpose=PURPOSE)
        others = tuple(one for one in self.signatures if one.key != made.key)
        return replace(self, signatures=(*others, made))

    def signers(self, trusted: TrustedKeys) -> tuple[str, ...]:
        """Names of the trusted keys that signed this document."""
        message = canonical(self._document())
        found = (trusted.signer(message, one, purpose=PURPOSE) for one in self.signatures)
        return tuple(name for name in found if name is not None)

    def differences(self, other: "Agreement") -> tuple[str, ...]:
        """Names of the entries in which two agreements differ; signatures do not count."""
        ours, theirs = self._document(), other._document()
        return tuple(n for n in ours if canonical({"": ours[n]}) != canonical({"": theirs[n]}))

    # ---- summaries ------------------------------------------------------------------------------

    def collusion_epsilon(self, colluding: int, n_parties: int | None = None) -> float:
        """The ε left when ``colluding`` of the parties that replied subtract their shares.

        ``n_parties`` replied; ``least_parties`` by default, which is the worst case. Own noise
        does not depend on the others.
        """
        if self.noise == "own":
            return collusion_epsilon(self.plan, noise_shares=1, n_parties=1, colluding=0)
        answered = self.least_parties if n_parties is None else n_parties
        return collusion_epsilon(
            self.plan, noise_shares=self.noise_shares, n_parties=answered, colluding=colluding
        )

    def collusion_text(self, n_parties: int | None = None) -> str:
        """What remains of the promise when parties collude, with figures."""
        if self.noise == "own":
            return "every party adds all of the noise: colluding parties learn no more than others"
        n = self.least_parties if n_parties is None else n_parties
        unit = self.privacy.unit
        figures = [
            f"{k} of {n} colluding: ε = {self.collusion_epsilon(k, n):.3g} per {unit}"
            for k in sorted({1, n // 2, n - 1} & set(range(1, n)))
        ]
        alone = self.collusion_epsilon(0, 1)
        figures.append(f"a reader of a single party's message: ε = {alone:.3g} per {unit}")
        return f"{'; '.join(figures)}; all at δ = {self.privacy.delta:.3g} per {unit}"

    def describe(self) -> str:
        """Summary for an owner to read before signing."""
        event = self.plan.event("", "")
        total, delta = self.rounds * event.epsilon, self.rounds * event.delta
        unit = self.privacy.unit
        if self.classes is None:
            outputs = f"outputs within {self.output_domain!r}"
        else:
            outputs = f"{len(self.classes)} declared classes"
        shares = "all" if self.noise == "own" else f"1 of {self.noise_shares} shares"
        entries = {
            "promise": f"{self.privacy.describe()} in each round; neighbours: {self.neighbours}",
            "rounds": f"{self.rounds} allowed, each charged to the ledger of every party: together "
            f"ε = {total:.4g} per {unit}, δ = {delta:.3g} per {unit}",
            "model": f"{self.model}, {outputs}{self._further()}",
            "features": f"{self.n_features} from {self.n_columns} columns, norm "
            f"{self.feature_norm:g}, radius {self.radius:g}: {_short(self.features)}",
            "parties": f"{', '.join(self.parties)}; {self.least_parties} of them must reply"
            + ("; all rows of a person are with one of them" if unit == "person" else ""),
            "noise": f"every party adds {shares} of the noise",
            "collusion": self.collusion_text(),
        }
        head = f"Agreement {self.digest[:16]}, {len(self.signatures)} signatures"
        return "\n".join([head, *(f"  {name:<10}{text}" for name, text in entries.items())])

    def _further(self) -> str:
        """What follows the moments of all rows."""
        if not self.n_directions:
            return ""
        return f"; scatter of each class in at most {self.n_directions} directions"

    def __str__(self) -> str:
        return self.describe()


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _ends(end: Any) -> Any:
    """One end of the outputs' range: a number, or one number per output."""
    if isinstance(end, Sequence | np.ndarray) and not isinstance(end, str):
        return tuple(plain_number("output_domain", value) for value in end)
    return plain_number("output_domain", end)


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
