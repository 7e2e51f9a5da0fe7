"""What every estimator with a promise shares: charge, read, release, certificate.

The order is that of `permea.privacy.release`: the plan follows from the public shape of the rows,
the ledger is charged for it, and only then the rows are read. What is learned comes from a
`Release` and from nothing else.
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from permea._arrays import Array
from permea.privacy.certificate import Certificate
from permea.privacy.ledger import Ledger
from permea.privacy.release import (
    ChargedRows,
    PrivacyWarning,
    Release,
    charge_rows,
    read_after_charge,
)
from permea.privacy.units import Privacy

FLOATS = [np.float64, np.float32]


class PrivateEstimator:
    """Mixin of estimators that learn from one release of their rows.

    They have the parameters ``privacy``, ``ledger``, ``dataset`` and ``random_state``, and after
    ``fit`` the attributes ``certificate_`` and ``holds_private_rows_``. A subclass whose
    ``__init__`` ends in ``**shared`` takes the keyword parameters of its base class as well; its
    signature, which scikit-learn reads, names them all.
    """

    privacy: Privacy | None
    ledger: Ledger | None
    dataset: str | None
    random_state: Any
    certificate_: Certificate | None
    holds_private_rows_: bool

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__.__signature__ = _whole_signature(cls)  # type: ignore[attr-defined]

    def _start(self) -> None:
        """Withdraw the certificate of an earlier fit: a fit that fails leaves none behind."""
        self.certificate_, self.holds_private_rows_ = None, True
        if self.privacy is not None:
            _warn_about_pipeline(self)

    def _charge(self, X: Any, description: str, groups: Any = None) -> ChargedRows | None:
        """Charge a release of rows before any value is read; nothing without privacy."""
        self._start()
        if self.privacy is None:
            return None
        return charge_rows(
            X, self.privacy, groups=groups, ledger=self.ledger, dataset=self.dataset,
            description=description,
        )  # fmt: skip

    def _read(
        self,
        X: ArrayLike,
        y: ArrayLike,
        check_outputs: Callable[[Any], None] = lambda y: None,
        **checks: Any,
    ) -> tuple[Array, NDArray[Any]]:
        """Rows and outputs, checked; with privacy this is done after the charge."""

        def read() -> tuple[Array, NDArray[Any]]:
            rows, outputs = validate_data(self, X, y, dtype=FLOATS, **checks)
            check_outputs(outputs)
            return rows, outputs

        return read() if self.privacy is None else read_after_charge(read)

    def _release(self, charged: ChargedRows | None, rows: Array, n_classes: int) -> Release:
        """The rows with noise; without privacy the rows as they are."""
        if charged is None:
            return Release(rows)
        return charged.release(rows, random_state=self.random_state, n_classes=n_classes)

    def _certify(self, released: Release) -> None:
        """Say what is promised about the rows, and whether they can be read out of this object."""
        self.certificate_ = released.certificate
        self.holds_private_rows_ = released.holds_private_rows


def _warn_about_pipeline(estimator: Any) -> None:
    """Warn when a pipeline fitted other steps on the raw rows: no promise covers what they learned.

    A step is harmless when its ``fit`` reads no value: feature maps and table encoders of this
    library, and transformers without state.
    """
    frame = inspect.currentframe()
    while frame is not None:
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline) and pipeline.steps[-1][1] is estimator:
            fitted = [name for _, step in pipeline.steps[:-1] for name in _learners(step)]
            if fitted:
                warnings.warn(
                    f"The pipeline fitted {', '.join(fitted)} on the raw rows before the promise "
                    "began, and what they learned is not protected. Scale by the declared domain, "
                    "or use a schema, instead of fitting on private rows.",
                    PrivacyWarning,
                    stacklevel=2,
                )
            return
        frame = frame.f_back


def _learners(step: Any) -> list[str]:
    """Names of the transformers in a step whose ``fit`` reads values; a step may hold several."""
    for inside in ("steps", "transformer_list", "transformers"):  # of the compositions of sklearn
        if hasattr(step, inside):
            return [name for _, one, *_ in getattr(step, inside) for name in _learners(one)]
    harmless = not hasattr(step, "fit") or getattr(step, "learns_nothing", False)
    return [] if harmless or not get_tags(step).requires_fit else [type(step).__name__]


def _whole_signature(cls: type) -> inspect.Signature:
    """Signature of ``__init__`` with the parameters that ``**shared`` hands to the base class."""
    own = inspect.signature(cls.__init__)  # type: ignore[misc]
    named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(named) == len(own.parameters):
        return own
    taken = {p.name for p in named}
    base = next(parent for parent in cls.__mro__[1:] if "__init__" in parent.__dict__)
    handed = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
    shared = [p for p in handed if p.kind is p.KEYWORD_ONLY and p.name not in taken]
    return own.replace(parameters=[*named, *shared])
