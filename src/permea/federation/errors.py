"""Errors and warnings of a federation; every module of the package may import them."""


class FederationError(RuntimeError):
    """Base class of everything that a federation refuses or fails to do."""


class ConsentError(FederationError):
    """A model is not private and its owner has not consented to its joining all the same."""


class SchemaError(FederationError):
    """Parties, or a party and its queries, disagree about features, classes or their domain."""


class RefusedError(FederationError):
    """A party refused a request. Retrying immediately will not help."""


class InvalidReplyError(FederationError):
    """A reply arrived, but a party that follows the protocol cannot have sent it."""


class PartyTimeoutError(FederationError, TimeoutError):
    """Something did not arrive or start in time."""


class QuorumError(FederationError):
    """Fewer parties replied than the federation needs. No labels were computed."""


class MissingPartiesWarning(UserWarning):
    """A result is based on fewer parties than the federation has."""


class SuspicionWarning(UserWarning):
    """A party's replies look unlike those of a fitted model."""


class ScaleWarning(UserWarning):
    """A query is farther from every class than the public scale of an encrypted federation."""
