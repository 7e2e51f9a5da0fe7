"""The asker's end of an encrypted queue: keys stay here, questions go in, labels come out.

The aggregator's queue is a folder (`permea.federation.service.http.Spool`): on the same machine, or
carried there and back by whatever copies files. Into it go the queries, the public key and the
evaluation keys; out of it come ciphertexts of labels. The secret key never lies in that folder.
"""

import os
from collections.abc import Callable
from pathlib import Path

from numpy.typing import ArrayLike

from permea.federation.aggregate import class_array
from permea.federation.encryption import EvaluationKey, Keys, PublicKey, SecretKey
from permea.federation.encryption.queries import Asker, EncryptedQuestion, Terms, name_labels
from permea.federation.service.http import JobResult, SealedResult, Spool, wait_for

KEY_FILES = ("secret.key", "public.key", "evaluation.key")


class EncryptedQueue:
    """Ask an encrypted federation through the queue of its aggregator.

    Parameters
    ----------
    folder : path
        The queue of the aggregator.
    keys : path, optional
        Folder of the asker's own, outside of the queue, where a key set is kept between programs.
        By default keys live in memory and die with this object.

    Examples
    --------
    With an aggregator that serves ``federation-state/queue``::

        queue = EncryptedQueue("federation-state/queue")
        result = queue.ask(X, asker="ward 3", timeout=600)
        result.labels, result.report["who_answered"]
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, keys: str | os.PathLike[str] | None = None
    ) -> None:
        self.spool = Spool(folder)
        self._folder = None if keys is None else Path(keys)
        if self._folder is not None and _inside(self._folder, self.spool.folder):
            raise ValueError(
                f"{self._folder} lies in the aggregator's queue: whoever aggregates could read the "
                "secret key. Keep the keys elsewhere."
            )
        self._asker: Asker | None = None
        self._questions: dict[str, EncryptedQuestion] = {}

    def submit(
        self,
        X: ArrayLike,
        *,
        asker: str,
        timeout: float = 600.0,
        check: Callable[[], None] = lambda: None,
    ) -> str:
        """Queue an encrypted question; returns the name of the job.

        Waits up to ``timeout`` seconds for the terms, which need as many parties as the quorum.
        """
        late = f"The aggregator published no terms within {timeout:g} s: too few parties are there."
        role = self._role(wait_for(self.spool.terms, timeout, late, check))
        question = role.question()
        queries = role.terms.schema.check_queries(X)
        job = self.spool.submit(
            queries, asker=asker, question=question, evaluation_key=role.evaluation_key
        )
        self._questions[job] = question
        return job

    def wait(self, job: str, timeout: float, check: Callable[[], None] = lambda: None) -> JobResult:
        """Wait for the answer to a job of this object, and decrypt it."""
        if self._asker is None or job not in self._questions:
            raise KeyError(f"Job {job} was not asked here: nobody else can open its answer.")
        late = f"No answer to job {job} within {timeout:g} s; it stays queued."
        found = wait_for(lambda: self.spool.sealed_result(job), timeout, late, check)
        return self._opened(found, self._questions[job])

    def ask(
        self,
        X: ArrayLike,
        *,
        asker: str,
        timeout: float,
        check: Callable[[], None] = lambda: None,
    ) -> JobResult:
        """Queue an encrypted question, wait, decrypt."""
        return self.wait(self.submit(X, asker=asker, timeout=timeout, check=check), timeout, check)

    def _opened(self, found: SealedResult, question: EncryptedQuestion) -> JobResult:
        assert self._asker is not None
        indices = self._asker.open(found.results, question)
        labels, beyond = name_labels(indices, question.classes)
        report = {**found.report, "beyond_scale": beyond}
        return JobResult(labels, None, class_array(question.classes), report)

    def _role(self, terms: Terms) -> Asker:
        """The asker under these terms; other terms need other keys."""
        if self._asker is None or self._asker.terms != terms:
            self._asker = Asker(terms, self._kept(terms))
            self._questions.clear()
        return self._asker

    def _kept(self, terms: Terms) -> Keys | None:
        """Keys of an earlier program for the same terms, or fresh ones that are kept."""
        if self._folder is None:
            return None
        place = self._folder / terms.scheme.fingerprint
        if place.exists():
            return load_keys(place)
        keys = terms.scheme.keygen()
        save_keys(keys, place)
        return keys


def save_keys(keys: Keys, folder: str | os.PathLike[str]) -> None:
    """Write a key set for its owner alone."""
    place = Path(folder)
    place.mkdir(parents=True, mode=0o700)
    for key, name in zip(keys, KEY_FILES, strict=True):
        with open(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.to_bytes())


def load_keys(folder: str | os.PathLike[str]) -> Keys:
    """Read `save_keys`."""
    secret, public, evaluation = ((Path(folder) / name).read_bytes() for name in KEY_FILES)
    return Keys(
        SecretKey.from_bytes(secret),
        PublicKey.from_bytes(public),
        EvaluationKey.from_bytes(evaluation),
    )


def _inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
