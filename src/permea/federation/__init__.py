"""Parties keep their data; a global classifier needs their distances only.

`Party` replies to queries with distances, `Federation` takes their minimum over parties and classes
(004 eq. 101-104), in one process, over Flower, or on ciphertexts. `MomentFederation` learns one
model from noised sums of the parties' rows.
"""

from permea.federation.aggregate import Answer, Suspicion
from permea.federation.agreement import Agreement, AgreementError
from permea.federation.errors import (
    ConsentError,
    FederationError,
    InvalidReplyError,
    MissingPartiesWarning,
    PartyTimeoutError,
    QuorumError,
    RefusedError,
    ScaleWarning,
    SchemaError,
    SuspicionWarning,
)
from permea.federation.federation import Federation
from permea.federation.guard import AuditLog, AuditLogError, Guard
from permea.federation.merging import merged
from permea.federation.moment_party import MomentParty
from permea.federation.moment_rounds import Journal
from permea.federation.moments import MomentFederation
from permea.federation.party import Party
from permea.federation.schema import Schema
from permea.federation.summary import Summary
from permea.federation.transport import RetryPolicy

__all__ = [
    "Agreement",
    "AgreementError",
    "Answer",
    "AuditLog",
    "AuditLogError",
    "ConsentError",
    "Federation",
    "FederationError",
    "Guard",
    "InvalidReplyError",
    "Journal",
    "MissingPartiesWarning",
    "MomentFederation",
    "MomentParty",
    "Party",
    "PartyTimeoutError",
    "QuorumError",
    "RefusedError",
    "RetryPolicy",
    "ScaleWarning",
    "Schema",
    "SchemaError",
    "Summary",
    "Suspicion",
    "SuspicionWarning",
    "merged",
]
