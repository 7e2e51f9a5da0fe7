"""What comes out of a model file that cannot be used."""


class StorageError(ValueError):
    """A model file cannot be written or read, with the reason and what to do."""

    __module__ = "permea.storage"


class RefusedError(ValueError):
    """A value is not what its field is declared to be; ``where`` says which field."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.where))}: {self.problem}" if self.where else self.problem
