"""Parties keep their data; a global classifier needs their distances only.

`Party` answers queries with distances, `Federation` takes their minimum over parties and classes
(004 eq. 101-104), in one process, over Flower, or on ciphertexts.
"""

from permea.federation.aggregate import Answer, Suspicion
from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import (
    ConsentError,
    FederationError,
    MissingPartiesWarning,
    QuorumError,
    RefusedError,
    ScaleWarning,
    SchemaError,
    SuspicionWarning,
)
from permea.federation.federation import Federation
from permea.federation.moments import MomentParty
from permea.federation.party import Guard, Party
from permea.federation.schema import Schema
from permea.federation.settings import Summary
from permea.federation.transport import Patience

__all__ = [
    "Agreement",
    "AgreementError",
    "Answer",
    "ConsentError",
    "Federation",
    "FederationError",
    "Guard",
    "MissingPartiesWarning",
    "MomentParty",
    "Party",
    "Patience",
    "QuorumError",
    "RefusedError",
    "ScaleWarning",
    "Schema",
    "SchemaError",
    "Summary",
    "Suspicion",
    "SuspicionWarning",
]
