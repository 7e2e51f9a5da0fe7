"""The ledger: an account of releases, and the fingerprint of rows that nobody named."""

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from permea.privacy.certificate import Certificate
from permea.privacy.ledger_events import (
    UNNAMED,
    UNNAMED_PREFIX,
    Account,
    Balance,
    Budget,
    Composition,
    Event,
    LedgerError,
    Receipt,
    TamperedLedgerError,
    budget_text,
    checked_event,
    clean_name,
    is_unnamed,
)
from permea.privacy.ledger_store import (
    Chain,
    Header,
    MemoryStore,
    Row,
    Store,
    export,
    imported,
    new_header,
    store_for,
)
from permea.privacy.units import Privacy, Unit

_CHUNK_BYTES = 1 << 24
_MODULUS = 1 << 256
_NUMBERS = (bool, int, float, np.number, np.bool_)
_FLOAT_SLACK = 1e-9  # sums of floats may miss a budget by rounding; not by more


class BudgetExceededError(ValueError):
    """Raised before a release that the budget does not allow.

    Nothing was computed or spent.
    """


class Ledger:
    """Append-only account of releases with an optional budget.

    Every event is charged before the rows are read and marked as released after; one that was
    charged and never released stays charged and says so. The ledger is safe under threads, forks
    and processes, and finds on opening whether it was tampered with.

    Parameters
    ----------
    where : path, str, Budget or Privacy, optional
        A path or ``"sqlite:///path"`` keeps the ledger in an SQLite file, which all processes of a
        machine can charge. ``"postgresql://user@host/database"`` keeps it in PostgreSQL, for an
        organisation (``pip install 'permea[postgres]'``); ``?ledger=name`` at its end chooses one
        of several. Without a place, the ledger lives in this process; a budget may stand here then.
        A ledger that does not exist is created.
    budget : Budget or Privacy, optional
        What may be spent per data set. Without one, the ledger only keeps account (per entry). It
        is fixed when a ledger is created; an existing one is opened with its own.
    composition : {"basic", "tight"}, optional
        ``"basic"``, the default, adds up ε and δ, which holds whatever made you choose the next
        release. ``"tight"`` composes privacy loss distributions at the budget's δ, which holds when
        the parameters of the releases do not depend on earlier results.
    at_least : Certificate or Receipt, optional
        Evidence that the ledger had an event: one that does not have it was restored from an older
        copy, or replaced, and is refused. Nothing is created then.
    existing : bool, optional
        True for a ledger that must exist, False for one that must be new. By default it is opened,
        or created if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from permea.privacy import Privacy, release
    >>> ledger = Ledger(Budget(epsilon=1.5, unit="entry"))
    >>> promise = Privacy(epsilon=1, domain=(0, 1))
    >>> once = release(np.zeros((5, 2)), promise, ledger=ledger, dataset="ward 7")
    >>> print(ledger.remaining)
    ε = 0.5 per entry, δ = 0 per entry
    >>> release(np.zeros((5, 2)), promise, ledger=ledger, dataset="ward 7")
    Traceback (most recent call last):
        ...
    permea.privacy.ledger.BudgetExceededError: This release would bring the data set 'ward 7' to
    ε = 2 per entry, δ = 0 per entry, beyond the budget of ε = 1.5 per entry, δ = 0 per entry.
    Nothing was computed. Ask for less, or account for rows that were never released under a
    data set name of their own.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Budget | Privacy | None = None,
        *,
        budget: Budget | Privacy | None = None,
        composition: Composition | None = None,
        at_least: "Certificate | Receipt | None" = None,
        existing: bool | None = None,
    ) -> None:
        if isinstance(where, Budget | Privacy):
            if budget is not None:
                raise TypeError("The budget is given twice.")
            where, budget = None, where
        if composition not in (None, "basic", "tight"):
            raise ValueError("composition must be 'basic' or 'tight'.")
        wanted = _as_budget(budget)
        self._keep_in(store_for(where))
        if not existing and at_least is None:
            self._create(new_header(wanted, composition or "basic"), must_be_new=existing is False)
        self._open(wanted, composition)
        if at_least is not None:
            self.check_against(at_least)

    def _keep_in(self, store: Store, known: tuple[str, int, str] | None = None) -> Self:
        self._store, self._known = store, known
        self._chain: Chain | None = None  # read when it is first needed
        return self

    def _create(self, header: Header, rows: Sequence[Row] = (), *, must_be_new: bool) -> None:
        if not self._store.create(header, rows) and must_be_new:
            raise LedgerError(
                f"{self.where} exists already. Name a place for a new ledger, so that no two "
                "accounts are mixed."
            )

    def _open(self, wanted: Budget | None, composition: Composition | None) -> None:
        """Read the whole chain, and compare it with what was asked for."""
        has = self._read().account
        if wanted is not None and wanted != has.budget:
            raise LedgerError(
                f"The ledger {self.where} was created with {budget_text(has.budget)}; "
                f"{budget_text(wanted)} was asked for. A budget is fixed when a ledger is "
                "created: leave it out here, or create another ledger."
            )
        if composition not in (None, has.composition):
            raise LedgerError(
                f"The ledger {self.where} was created with {has.composition} composition; "
                f"{composition} was asked for. It is fixed when a ledger is created."
            )

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[Chain]:
        """The whole chain, read as far as it goes: also what other processes added meanwhile."""
        with self._store.transaction(write=write):
            header = self._store.header()
            if self._chain is None:
                chain = Chain(header, self._store.place)
                chain.follow(header, self._store.rows(0))
                if self._known is not None:
                    self._require(chain, *self._known)
                self._chain = chain
            elif (header.number, header.hash) != (self._chain.number, self._chain.hashes[-1]):
                self._chain.follow(header, self._store.rows(self._chain.number))
            yield self._chain

    def _read(self) -> Chain:
        with self._transaction() as chain:
            return chain

    def __sklearn_clone__(self) -> Self:
        """Clones share this ledger."""
        return self

    __copy__ = __sklearn_clone__

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process, a stored ledger is opened there; a copy of one in memory is read."""
        with self._transaction() as chain:
            if isinstance(self._store, MemoryStore):
                return _copy_in_another_process, (self._store.header(), tuple(self._store.rows(0)))
        return _open_later, (self._store.address, chain.id, chain.number, chain.hashes[-1])

    @property
    def where(self) -> str:
        """Where the ledger is kept, without a password."""
        return self._store.place

    @property
    def id(self) -> str:
        """The random id that the ledger got when it was created."""
        return self._read().id

    @property
    def budget(self) -> Budget | None:
        """What may be spent per data set."""
        return self._read().account.budget

    @property
    def composition(self) -> Composition:
        """How events are composed."""
        return self._read().account.composition

    @property
    def unit(self) -> Unit:
        """The unit the account is kept in."""
        return self._read().account.unit

    @property
    def events(self) -> tuple[Event, ...]:
        """All charged releases in their order, each with its status."""
        return self._read().account.events

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names that users gave to data sets that gave something away."""
        return self._read().account.datasets

    def name_for(self, dataset: str | None, X: Any, y: Any = None) -> str:
        """Give the name under which a release of ``X`` is charged.

        Parameters
        ----------
        dataset : str or None
            The user's name. Naming two data sets differently claims that they share no person.
        X : array-like
            The rows. Without a name they get a keyed fingerprint, ``"rows-…"``, the same for the
            same rows in any order and dtype.
        y : ignored
            The same rows with other labels are the same people.

        Returns
        -------
        str
            A name for :class:`Event`.
        """
        if dataset is not None:
            return clean_name(dataset)
        return fingerprint(X, self._read().key)

    def spend(
        self,
        privacy: Privacy,
        *,
        dataset: str | None = None,
        description: str = "release",
        n_columns: int | None = None,
    ) -> Receipt:
        """Charge a release that keeps ``privacy`` for rows of ``n_columns``, or charge nothing."""
        from permea.privacy.release import plan  # release builds on the ledger

        columns = privacy.n_columns if n_columns is None else n_columns
        if columns is None:
            raise ValueError("n_columns is needed to account for a whole record.")
        name = UNNAMED if dataset is None else clean_name(dataset)
        receipt = self.charge(plan(privacy, columns).event(name, description))
        self.released(receipt)
        return receipt

    def charge(self, event: Event) -> Receipt:
        """Check the budget and charge an event in one step, or raise and charge nothing.

        Parameters
        ----------
        event : Event
            What is to be released. Its rows must not have been looked at.

        Returns
        -------
        Receipt
            For :meth:`released`, once the release is complete, and for the certificate.
        """
        event = checked_event(event)
        with self._transaction(write=True) as chain:
            self._check(chain.account, event)
            row = chain.charge_row(event)
            self._store.append([row])
        return Receipt(chain.id, row.number, row.hash, event)

    def released(self, receipt: Receipt) -> None:
        """Mark a charged event as released; a second time changes nothing."""
        with self._transaction(write=True) as chain:
            self._require(chain, receipt.ledger_id, receipt.number, receipt.hash)
            if chain.account.status(receipt.number) == "charged":
                self._store.append([chain.release_row(receipt.number)])

    @staticmethod
    def _check(account: Account, event: Event) -> None:
        if account.budget is None:
            return
        limit, after = account.budget, account.spent_on(event.dataset, event)
        slack = 1.0 + _FLOAT_SLACK
        if after.epsilon <= limit.epsilon * slack and after.delta <= limit.delta * slack:
            return
        whose, advice = f"the data set {event.dataset!r}", "under a data set name of their own"
        if not event.is_named:
            whose = "rows without a name, which count against every data set,"
            advice = "under a data set name (dataset=…)"
        raise BudgetExceededError(
            f"This release would bring {whose} to {Balance(*after, account.unit)}, beyond the "
            f"budget of {Balance(limit.epsilon, limit.delta, account.unit)}. Nothing was computed. "
            f"Ask for less, or account for rows that were never released {advice}."
        )

    def check_against(self, evidence: "Certificate | Receipt") -> None:
        """Refuse a ledger that does not have an event which a certificate or a receipt names.

        A ledger that was restored from an older copy, or written anew from its beginning, holds
        together by itself; a later certificate reveals it.

        Parameters
        ----------
        evidence : Certificate or Receipt
            The last one that is at hand.
        """
        if isinstance(evidence, Receipt):
            found = evidence.ledger_id, evidence.number, evidence.hash
        else:
            found = evidence.ledger_id, evidence.ledger_number, evidence.ledger_hash
        if not found[0]:
            raise LedgerError("This certificate names no ledger: its release was charged to none.")
        if not isinstance(found[1], int) or found[1] < 1:
            raise LedgerError("This certificate names no event of a ledger.")
        with self._transaction() as chain:
            self._require(chain, *found)

    def _require(self, chain: Chain, ledger_id: str, number: int, digest: str) -> None:
        if ledger_id != chain.id:
            raise TamperedLedgerError(
                f"The ledger {self.where} is not the one that paid: either it was replaced, or the "
                "certificate or receipt belongs to another ledger."
            )
        if number > chain.number:
            raise chain.tampered(
                f"it ends with entry {chain.number}, and entry {number} was already paid from it: "
                "an older copy was restored"
            )
        if chain.hashes[number] != digest:
            raise chain.tampered(f"entry {number} is not the one that was written")

    def spent_on(self, dataset: str | None) -> Balance:
        """What one data set has spent, everything that was released without a name included."""
        name = _account_name(dataset)
        with self._transaction() as chain:
            return Balance(*chain.account.spent_on(name), chain.account.unit)

    @property
    def spent(self) -> Balance:
        """What the most spent data set has spent: disjoint data sets do not add up."""
        with self._transaction() as chain:
            return Balance(*chain.account.spent_on(UNNAMED), chain.account.unit)

    @property
    def remaining(self) -> Balance:
        """What the most spent data set may still spend (infinite without a budget)."""
        with self._transaction() as chain:
            return chain.account.remaining(chain.account.spent_on(UNNAMED))

    def summary(self, dataset: str | None) -> str:
        """One line for a certificate; a fingerprint is not shown."""
        name = _account_name(dataset)
        with self._transaction() as chain:
            return chain.account.summary(name)

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return True  # an empty ledger is a ledger

    def __repr__(self) -> str:
        return f"<Ledger {self.where}>"

    def __str__(self) -> str:
        with self._transaction() as chain:
            return str(chain.account)

    def _repr_html_(self) -> str:
        """Budget, balances and releases; a fingerprint of rows is not shown."""
        from permea._html import definitions, table

        facts: list[tuple[str, object]] = [("ledger", self.where)]
        facts += [("budget", self.budget or "none: it only keeps account")]
        facts += [(name, self.spent_on(name)) for name in self.datasets if not is_unnamed(name)]
        rows = [
            (one.number, one.time, one.dataset if one.is_named else "unnamed rows",
             one.description, f"{Balance(one.epsilon, one.delta, one.unit)}", one.status)
            for one in self.events
        ]  # fmt: skip
        head = ("event", "time (UTC)", "data set", "release", "cost", "status")
        return definitions(facts) + table(head, rows, title=f"{len(rows)} releases", open=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON that may be passed on: without the key and without fingerprints."""
        with self._transaction() as chain:
            return export(chain)

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], where: str | os.PathLike[str] | None = None
    ) -> Self:
        """Begin a new ledger with the events of :meth:`to_dict`, or of a ledger of version 0.1.

        Every event is checked before anything is created. The new ledger has an id of its own; the
        old one must not be charged any more.

        Parameters
        ----------
        values : mapping
        where : path or str, optional
            Place of the new ledger, which must not exist.
        """
        header, rows = imported(values)
        made = cls.__new__(cls)._keep_in(store_for(where))
        made._create(header, rows, must_be_new=True)
        made._open(None, None)
        return made

    @classmethod
    def import_json(
        cls, path: str | os.PathLike[str], where: str | os.PathLike[str] | None = None
    ) -> Self:
        """Read a ledger of version 0.1, or an export, into a new ledger.

        Parameters
        ----------
        path : path
            The JSON file. In version 0.1 rows without a name were called "data", "source" or
            "federation"; they count as rows without a name.
        where : path or str, optional
            Place of the new ledger, which must not exist.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise LedgerError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError:
            raise LedgerError(f"{path} is not a ledger: no valid JSON.") from None
        if not isinstance(values, dict):
            raise LedgerError(f"{path} is not a ledger.")
        return cls.from_dict(values, where)


def _copy_in_another_process(header: Header, rows: tuple[Row, ...]) -> Ledger:
    return Ledger.__new__(Ledger)._keep_in(MemoryStore(header, rows, is_copy=True))


def _open_later(where: str, ledger_id: str, number: int, digest: str) -> Ledger:
    """Open a ledger when it is first used, and check then that it is still the same."""
    return Ledger.__new__(Ledger)._keep_in(store_for(where), (ledger_id, number, digest))


def _as_budget(budget: object) -> Budget | None:
    if isinstance(budget, Privacy):
        return Budget(epsilon=budget.epsilon, delta=budget.delta, unit=budget.unit)
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError("budget must be a Budget, e.g. Budget(epsilon=3, unit='entry').")
    return budget


def _account_name(dataset: str | None) -> str:
    if dataset is None or (isinstance(dataset, str) and is_unnamed(dataset)):
        return UNNAMED
    return clean_name(dataset)


def fingerprint(rows: Any, key: bytes) -> str:
    """Give ``"rows-<32 hex digits>"`` for a table, the same in any order of its rows and dtype.

    It is computed before a ledger is charged. So it never fails, whatever the rows hold: an error
    here would tell about the data for free.

    Parameters
    ----------
    rows : array-like
        Numbers count as doubles, whatever their dtype; anything else counts as its text.
    key : bytes
        Secret of the ledger: without it nobody can test whether a fingerprint is that of some rows.

    Returns
    -------
    str
        ``"rows-unnamed"`` where the rows cannot be read one by one.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6).reshape(3, 2)
    >>> fingerprint(X, b"key") == fingerprint(X[::-1].astype(np.float32), b"key")
    True
    >>> fingerprint(X, b"key") == fingerprint(X + 1, b"key")
    False
    """
    try:
        total, count = 0, 0
        with np.errstate(all="ignore"):  # a warning would tell about the values
            for row in _encoded(rows):
                digest = hashlib.blake2b(row, key=key, digest_size=32).digest()
                total += int.from_bytes(digest, "big")
                count += 1
    except Exception:  # whatever the rows are, naming them must not tell anything about them
        return UNNAMED
    summed = (total % _MODULUS).to_bytes(32, "big") + count.to_bytes(16, "big")
    return UNNAMED_PREFIX + hashlib.blake2b(summed, key=key, digest_size=16).hexdigest()


def _encoded(rows: Any) -> Iterator[bytes]:
    """Every row as bytes, a bounded number of rows at a time."""
    if hasattr(rows, "toarray"):  # sparse: dense a few rows at a time
        table = rows.tocsr()
    else:
        table = np.asarray(rows)
        table = table.reshape(len(table), -1)  # a single value has no length
    step = max(1, _CHUNK_BYTES // (8 * max(1, table.shape[1])))
    for start in range(0, table.shape[0], step):
        part = table[start : start + step]
        part = part.toarray() if hasattr(part, "toarray") else part
        if part.dtype.kind in "mM":
            part = part.view(np.int64)
        if part.dtype.kind in "biuf":
            yield from (row.tobytes() for row in _doubles(part))
        else:
            yield from (b"".join(map(_encoded_cell, cells)) for cells in part.tolist())


def _encoded_cell(cell: Any) -> bytes:
    """One value as bytes: a number as in `_doubles`, anything else as its text."""
    if isinstance(cell, _NUMBERS):
        try:
            number = float(cell) + 0.0
            return struct.pack("<d", math.nan if math.isnan(number) else number)
        except (OverflowError, TypeError, ValueError):  # a whole number beyond the doubles
            cell = repr(cell)
    text = str(cell).encode("utf-8", "surrogatepass")
    return b"text" + len(text).to_bytes(8, "big") + text


def _doubles(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Doubles in which equal numbers have equal bytes."""
    values = numbers.astype("<f8") + 0.0  # -0.0 becomes 0.0
    return np.where(np.isnan(values), np.nan, values)
