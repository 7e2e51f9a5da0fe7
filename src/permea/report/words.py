"""The certificate in plain words: what ε means for somebody who does not compute with it."""

import math

from permea.privacy import Certificate

HOW_TO_VERIFY = (
    "No trusted key has signed this certificate, so nothing shows who wrote it or that it belongs "
    "to this model. Its owner signs with --sign KEY; its reader lists the public key in a file "
    "given by --trusted."
)
_WEAK = 3.0  # the best guess is right in 95 % of cases
_WORTHLESS = 10.0  # from here on the best guess is certain for all practical purposes


def odds(epsilon: float) -> str:
    """The factor e^ε by which odds can move, readable.

    Examples
    --------
    >>> odds(1.0), odds(500.0)
    ('2.7', 'more than a million')
    """
    if epsilon > math.log(1e6):
        return "more than a million"
    factor = math.exp(epsilon)
    return f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}"


def best_guess(epsilon: float, delta: float) -> str:
    """Certainty that a coin flip can grow to: (e^ε + δ) / (1 + e^ε), in words.

    With equal prior odds the share of right guesses between two neighbouring data sets is at most
    this, whatever the attacker knows and computes.

    Examples
    --------
    >>> best_guess(1.0, 0.0), best_guess(8.0, 0.0), best_guess(400.0, 0.0)
    ('73.1 %', '99.97 %', 'practically 100 %')
    """
    certainty = min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))
    if certainty > 0.99995:
        return "practically 100 %"
    digits = 1 if certainty < 0.99 else 2
    return f"{100 * certainty:.{digits}f} %"


def hides_rows(certificate: Certificate) -> bool:
    """Whether the promise about a whole row says anything in the worst case."""
    return certificate.record_epsilon < _WORTHLESS


def standing(certificate: Certificate) -> str:
    """The verdict on a certificate, with the name of the key that signed it."""
    if certificate.is_private and certificate.signer:
        return f"{certificate.status}, signed by {certificate.signer}"
    return certificate.status


def paragraphs(certificate: Certificate) -> list[str]:
    """What is promised and what is not, one thought per paragraph."""
    if not certificate.is_private:
        return [
            "This model is NOT private: " + "; ".join(certificate.reasons_not_private) + ".",
            "The figures below describe what was asked for, not what is promised.",
        ]
    out = [] if certificate.is_verified else [f"This is an unverified claim. {HOW_TO_VERIFY}"]
    out += [
        "The training data were noised before anything else saw them, so whoever gets the model, "
        "with any knowledge and any computer, learns from it only what the noised data tell.",
        _about_units(certificate),
    ]
    if certificate.privacy.unit == "entry":
        out.append(_about_rows(certificate))
    out.append(_about_exposure(certificate))
    if certificate.is_weakened:
        out.append(
            "The noise was drawn in floating point, whose low digits can leak. Treat the promise "
            "as weaker than it reads."
        )
    return out


def _about_units(certificate: Certificate) -> str:
    privacy = certificate.privacy
    thing = "single value" if privacy.unit == "entry" else "whole row"
    text = (
        f"About any {thing} of the table: between two possibilities that seemed equally likely, "
        f"the best guess is right in at most {best_guess(privacy.epsilon, privacy.delta)} of cases "
        f"(50 % is a coin flip; the odds move by a factor of at most {odds(privacy.epsilon)})."
    )
    if privacy.epsilon > _WEAK:
        text += (
            " That bound is for the two ends of the declared range and leaves little to doubt; "
            f"values closer together are harder to tell apart. The noise: {certificate.noise}."
        )
    return text


def _about_rows(certificate: Certificate) -> str:
    epsilon, delta = certificate.record_epsilon, certificate.record_delta
    start = (
        f"About a whole row (one person, one image) the promise is ε = {epsilon:.4g} per record, "
        f"because its {certificate.n_columns} values add up"
    )
    if epsilon >= _WORTHLESS:
        return (
            f"{start}. In the worst case that hides nothing about a row as a whole: somebody who "
            "knows nearly all of it can find out the rest of what makes it that row. What the "
            "attacks below reach is evidence, not proof. If rows as a whole must be hidden, train "
            "with --unit record."
        )
    return f"{start}: the best guess about a row is right in at most {best_guess(epsilon, delta)}."


def _about_exposure(certificate: Certificate) -> str:
    if certificate.exposed_entries == 0:
        return "No value is released as it is by design (δ brings no point mass)."
    total = certificate.n_rows * certificate.n_columns
    return (
        f"δ is real exposure: about {certificate.exposed_entries:.3g} of {total:,} values are "
        "expected to have received no noise at all. Nobody can see which ones."
    )
