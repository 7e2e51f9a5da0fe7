"""Charge first: the order of every private release.

1. The shape of the rows, which is public, gives the plan of the noise.
2. The ledger is charged for the plan. Nothing else about the rows was looked at so far.
3. The rows are read. Whatever is wrong with them is told from here on only, because an error that
   depends on them is a release of its own.
4. The noised result leaves, the ledger notes it, and the certificate names the ledger's event.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from permea.privacy.bits import Process, this_process
from permea.privacy.certificate import Certificate

if TYPE_CHECKING:
    from permea.privacy.ledger import Event, Ledger, Receipt


class UnreadableRowsError(ValueError):
    """Rows that cannot be used, found out after the charge: what is wrong with them is private."""


class PrivacyWarning(UserWarning):
    """A promise that is kept formally and protects next to nothing.

    Raised with δ of one over the number of rows or more, and with ε above 20 per record.
    """


@dataclass(frozen=True)
class Payment:
    """A release that was charged and is still to be made, once and in this process."""

    ledger: "Ledger | None" = None
    receipt: "Receipt | None" = None
    _process: Process = field(default_factory=this_process)
    _uses: list[None] = field(default_factory=list)

    def use(self) -> None:
        """Take the payment: what was charged once is released once, also by threads and forks."""
        self._uses.append(None)
        if len(self._uses) > 1 or self._process != this_process():
            raise RuntimeError("This release was paid for once, by one process; charge it anew.")

    def certify(self, certificate: Certificate) -> Certificate:
        """Note the release in the ledger, name its event on the certificate, and warn."""
        warn_if_worthless(certificate)
        if self.ledger is None or self.receipt is None:
            return certificate
        self.ledger.released(self.receipt)
        receipt = self.receipt
        return replace(
            certificate,
            ledger=self.ledger.summary(receipt.event.dataset),
            ledger_id=receipt.ledger_id,
            ledger_number=receipt.number,
            ledger_hash=receipt.hash,
        )


def pay(
    ledger: "Ledger | None",
    event: "Callable[[str, str], Event]",
    dataset: str | None,
    description: str,
    rows: Any = None,
) -> Payment:
    """Charge a planned release before its rows are read, or raise and charge nothing.

    Parameters
    ----------
    ledger : Ledger or None
        Without one, no account is kept.
    event : callable
        Gives the event for a name of the data set and a description.
    dataset : str or None
        The name that the user gave to the rows; None for rows without a name.
    description : str
        For the ledger.
    rows : any, optional
        The rows, for the fingerprint of rows without a name.
    """
    if ledger is None:
        return Payment()
    name = ledger.name_for(dataset, rows)
    return Payment(ledger, ledger.charge(event(name, description)))


def table_shape(X: Any) -> tuple[int, int]:
    """Number of rows and columns, without a look at any value.

    Examples
    --------
    >>> table_shape([[1.0, float("nan")]])
    (1, 2)
    """
    shape: tuple[int, ...] | None = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = np.shape(X)
        except ValueError:  # rows of different lengths
            shape = ()
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            "The rows must be a table with at least one row and one column, and as many values "
            "in every row; a single column is reshaped by array.reshape(-1, 1)."
        )
    return int(shape[0]), int(shape[1])


def read_after_charge(read: Callable[[], Any]) -> Any:
    """Read private rows by ``read`` after the charge; an error tells its kind and no value.

    Examples
    --------
    >>> read_after_charge(lambda: float("Smith"))
    Traceback (most recent call last):
        ...
    permea.privacy.payment.UnreadableRowsError: The rows could not be used...
    """
    try:
        return read()
    except (TypeError, ValueError):
        raise UnreadableRowsError(
            "The rows could not be used, and where and why is private. Expected are finite "
            "numbers without missing values in every column, and one known label or number per "
            "row. Prepare the table by rules that do not depend on its values; what was charged "
            "stays charged."
        ) from None


def warn_if_worthless(certificate: Certificate) -> None:
    """Warn about a promise that is kept formally and protects next to nothing."""
    for text in certificate.warnings:
        warnings.warn(text, PrivacyWarning, stacklevel=3)
