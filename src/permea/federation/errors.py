"""What can go wrong in a federation, by name."""


class FederationError(RuntimeError):
    """Base class of everything that a federation refuses or fails to do."""


class ConsentError(FederationError):
    """A model is not private and its owner has not said in words that it may join all the same."""


class SchemaError(FederationError):
    """Parties, or a party and its queries, disagree about features, classes or their domain."""


class RefusedError(FederationError):
    """A party refused a batch: too large or too many. Asking again at once is vain."""


class LyingError(FederationError):
    """A reply cannot come from an honest distance function."""


class QuorumError(FederationError):
    """Fewer parties answered than the federation needs. Nothing was answered."""


class MissingPartiesWarning(UserWarning):
    """An answer rests on fewer parties than the federation has."""


class SuspicionWarning(UserWarning):
    """A party answers in a way that an honest model hardly would."""


class ScaleWarning(UserWarning):
    """A query is farther from every class than the public scale of an encrypted federation."""
