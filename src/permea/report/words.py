"""Sentences of reports, in the languages that stand in the folder ``texts`` beside this file."""

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from permea.report.chances import ALL_BUT_CERTAIN, certainty

LANGUAGES = ("en", "de")
_MILLION = math.log(1e6)


@cache
def _texts(language: str) -> Mapping[str, Any]:
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}; got {language!r}.")
    return tomllib.loads((files("permea.report") / "texts" / f"{language}.toml").read_text("utf-8"))


class Words:
    """The sentences of one language, and numbers as it writes them.

    Parameters
    ----------
    language : {"en", "de"}

    Examples
    --------
    >>> german = Words("de")
    >>> german("sections.purpose"), german.number(0.25), german.percent(0.731)
    ('Zweck', '0,25', '73,1 %')
    >>> german.promise("person", 1.0, 1e-6)
    'ε = 1 je Person, δ = 1e-06 je Person'
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language
        self._values = _texts(language)

    def __call__(self, key: str, **values: object) -> str:
        """A sentence by its key, with values filled in."""
        text: str = self.entry(key)
        return text.format(decimal=self._values["decimal"], **values)

    def entry(self, key: str) -> Any:
        """What stands at a key such as ``"answers.promise"``: a text, a list or a table."""
        found: Any = self._values
        for part in key.split("."):
            found = found[part]
        return found

    def local(self, text: str) -> str:
        """A formatted number with the decimal sign of the language."""
        return text.replace(".", self._values["decimal"])

    def number(self, value: float, form: str = ".4g") -> str:
        """A number; infinity is written as a sign."""
        return "∞" if value == float("inf") else self.local(format(value, form))

    def percent(self, share: float) -> str:
        """A share in percent."""
        return self.number(100 * share, ".1f") + " %"

    def promise(self, unit: str, epsilon: float, delta: float) -> str:
        """ε and δ, each with its unit."""
        per = self.entry(f"per.{unit}")
        return f"ε = {self.number(epsilon, 'g')} {per}, δ = {self.number(delta, '.3g')} {per}"

    def guess(self, epsilon: float, delta: float) -> str:
        """The share of right guesses that a promise allows between two equal possibilities."""
        share = certainty(epsilon, delta)
        if share > ALL_BUT_CERTAIN:
            return self("certain")
        return self.number(100 * share, ".1f" if share < 0.99 else ".2f") + " %"

    def odds(self, epsilon: float) -> str:
        """The factor by which a promise lets odds change."""
        factor = math.exp(min(epsilon, _MILLION))
        if epsilon >= _MILLION:
            return self("million")
        return self.number(factor, ".1f" if factor < 100 else ".0f")

    def of_certificate(self, sentence: str) -> str:
        """A sentence of a certificate, translated where the language knows it."""
        known: Mapping[str, str] = self._values.get("certificate", {})
        return known.get(sentence, sentence)
