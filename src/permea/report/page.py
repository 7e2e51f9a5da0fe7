"""Small grey pictures as PNG data addresses, with nothing but the standard library."""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from permea._arrays import Array
from permea._files import write_atomically
from permea._text import safe_html as escape
from permea._text import safe_json
from permea._version import __version__
from permea.privacy import Certificate
from permea.report import svg
from permea.report.content import Accuracy, Chart, Report, Samples


def png_address(picture: Array) -> str:
    """A picture with values in [0, 1], dark on white, as an address for ``<img src>``.

    Parameters
    ----------
    picture : ndarray of shape (height, width)
        0 is white and 1 is black; what lies outside is cut off.

    Returns
    -------
    str
        ``data:image/png;base64,…``

    Examples
    --------
    >>> png_address(np.zeros((2, 2)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.clip(np.rint(255 * (1 - picture)), 0, 255).astype(np.uint8)
    height, width = levels.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), levels])  # no filter on any row
    data = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def strip(rows: Array, shape: tuple[int, int], domain: tuple[float, float]) -> Array:
    """Several rows as pictures side by side, one white column between them.

    Examples
    --------
    >>> strip(np.ones((3, 4)), (2, 2), (0.0, 1.0)).shape
    (2, 8)
    """
    low, high = domain
    pictures = (np.asarray(rows, dtype=np.float64) - low) / (high - low)
    gap = np.zeros((shape[0], 1))
    parts = [part for row in pictures for part in (row.reshape(shape), gap)]
    return np.hstack(parts[:-1])


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


_CLAIM = {
    "PRIVATE": "Claimed ε",
    "unverified claim": "Claimed ε (unverified)",
    "not private": "Asked for (NOT promised)",
}
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_html(report: Report, path: str | Path) -> Path:
    """Write the report to one file.

    Parameters
    ----------
    report : Report
        What to show.
    path : path
        Where; it appears only when it is complete. A symbolic link there is replaced, not followed.

    Returns
    -------
    pathlib.Path
        The file.
    """
    return write_atomically(path, render(report).encode("utf-8"))


def render(report: Report) -> str:
    """The report as HTML.

    Examples
    --------
    >>> "NOT PRIVATE" in render(Report(title="A model without privacy"))
    True
    """
    style, script = (files("permea.report").joinpath(name).read_text("utf-8") for name in
                     ("style.css", "script.js"))  # fmt: skip
    sections = [part for part in _sections(report) if part[2]]
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{escape(title)}'
        f"</h2>{content}</section>"
        for key, title, content in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)} · permea report</title><style>{style}</style></head>\n"
        f"<body><header>{_head(report)}</header>"
        f'<nav aria-label="Sections">{links}</nav>'
        f"<main>{body}</main><footer>Written by permea {__version__}. This file is complete: it "
        f"loads nothing from anywhere.</footer><script>{script}</script></body></html>\n"
    )


def _sections(report: Report) -> list[tuple[str, str, str]]:
    utility = [chart for chart in report.charts if chart.key.startswith("utility")]
    distances = [chart for chart in report.charts if chart.key.startswith("distances")]
    roc = [chart for chart in report.charts if chart.key.startswith("roc")]
    rest = [c for c in report.charts if c not in (*utility, *distances, *roc)]
    return [
        ("promise", "What is promised", _promise(report)),
        ("attacks", "What attacks reach", _attacks(report.attacks, roc, report.baseline)),
        ("utility", "Privacy against usefulness", _charts(utility)),
        ("accuracy", "Accuracy", _accuracy(report.accuracy)),
        ("samples", "Rows before and after", _samples(report.samples)),
        ("distances", "Distances of members and others", _charts(distances)),
        ("measures", "Leakage, interpretability, transferability", _measures(report) +
         _charts(rest)),
        ("reproduce", "How to reproduce", _reproduce(report)),
    ]  # fmt: skip


def _head(report: Report) -> str:
    facts = " · ".join(f"{escape(k)}: {escape(v)}" for k, v in report.facts.items())
    return (
        f"<h1>{escape(report.title)}</h1>"
        f'<p class="facts">{facts}</p>{_verdict(report)}{_care(report)}{_figures(report)}'
    )


def _verdict(report: Report) -> str:
    weakest = report.weakest
    if weakest is None:
        text = (
            "NOT PRIVATE: no certificate. Whoever has this model may read training rows out of it."
        )
        return f'<strong class="verdict">{text}</strong>'
    if not report.is_private:
        reasons = {r for c in report.certificates.values() for r in c.reasons_not_private}
        text = "NOT PRIVATE: " + "; ".join(sorted(reasons))
        return f'<strong class="verdict">{escape(text)}</strong>'
    if not report.is_verified:
        text = f"UNVERIFIED CLAIM: {weakest.privacy.describe()}. {HOW_TO_VERIFY}"
        return f'<strong class="verdict weak">{escape(text)}</strong>'
    text = f"PRIVATE: {weakest.privacy.describe()}"
    if hides_rows(weakest):
        return f'<strong class="verdict good">{escape(text)}</strong>'
    text = (
        f"PRIVATE PER VALUE, NOT PER ROW: {weakest.privacy.describe()}. About a whole row the "
        f"promise is ε = {weakest.record_epsilon:.4g} per record, which in the worst case hides "
        "nothing."
    )
    return f'<strong class="verdict weak">{escape(text)}</strong>'


def _care(report: Report) -> str:
    if not report.computed_from_private_rows:
        return ""
    parts = ", ".join(report.computed_from_private_rows)
    return (
        '<div class="care" role="note"><p><strong>For the owner of the data.</strong> These parts '
        f"were computed from the rows themselves and no noise protects them: {escape(parts)}. "
        "The promise above is about the model, not about this report.</p></div>"
    )


def _figures(report: Report) -> str:
    cards = []
    if report.accuracy is not None:
        low, high = report.accuracy.interval
        cards.append(
            _card("Accuracy", f"{100 * report.accuracy.value:.1f} %",
                  f"on {report.accuracy.n_rows} rows that were not trained on; 95 % interval "
                  f"{100 * low:.1f} to {100 * high:.1f} %")
        )  # fmt: skip
    weakest = report.weakest
    if weakest is not None:
        privacy = weakest.privacy
        record = f"ε = {weakest.record_epsilon:.4g}, δ = {weakest.record_delta:.2g} per record"
        small = f"δ = {privacy.delta:g} per {privacy.unit}. For a whole row: {record}"
        if privacy.unit == "record":
            small = f"δ = {privacy.delta:g} per record (a whole row)"
        claim = _CLAIM[report.status]
        cards.append(_card(claim, f"ε = {privacy.epsilon:g} per {privacy.unit}", small))
    best = report.strongest_attack
    if best is not None:
        low, high = best["auc_interval"]
        cards.append(
            _card("Strongest attack", f"AUC {best['auc']:.3f}",
                  f"{_attack_name(best['name'])}; 0.5 is guessing, 1 is certainty; 95 % interval "
                  f"{low:.3f} to {high:.3f}")
        )  # fmt: skip
    return f'<div class="figures">{"".join(cards)}</div>' if cards else ""


def _card(title: str, value: str, small: str) -> str:
    return (
        f'<div class="figure"><span>{escape(title)}</span><b>{escape(value)}</b>'
        f"<small>{escape(small)}</small></div>"
    )


def _promise(report: Report) -> str:
    weakest = report.weakest
    if weakest is None:
        return (
            "<p>Nothing is promised: the model was trained on the rows as they are. A model of "
            "this kind keeps training rows; guard its file like the data.</p>"
        )
    text = "".join(f"<p>{escape(line)}</p>" for line in paragraphs(weakest))
    missing = "".join(f"<li>{escape(item)}</li>" for item in weakest.not_protected)
    text += f"<h3>Not protected</h3><ul>{missing}</ul>"
    for name, certificate in report.certificates.items():
        text += (
            f"<details{' open' if len(report.certificates) == 1 else ''}><summary>Certificate of "
            f"{escape(name)}</summary>{_certificate(certificate)}</details>"
        )
    return text


def _certificate(certificate: Certificate) -> str:
    entries = [("status", standing(certificate)), *certificate.entries()]
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries)
    return f"<dl>{lines}</dl>"


def _attack_name(name: str) -> str:
    return name.replace("_", " ")


def _attacks(attacks: dict[str, Any] | None, roc: Sequence[Chart], baseline: str) -> str:
    if attacks is None:
        return ""
    applied = [one for one in attacks["attacks"] if not one["note"]]
    rows = "".join(_attack_row(one) for one in applied)
    skipped = [one for one in attacks["attacks"] if one["note"]]
    out = (
        "<p>Each attack is shown rows that trained the model and rows that did not, and guesses "
        "which is which. An AUC of 0.5 is guessing. The promise above holds against every attack; "
        "these are the ones that were tried.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Attacks"><table><thead><tr>'
        '<th>attack</th><th class="n">AUC</th><th>95 % interval</th>'
        '<th class="n">advantage</th><th class="n wide">found at 1 % false alarms</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    if skipped:
        names = "; ".join(f"{_attack_name(one['name'])} ({one['note']})" for one in skipped)
        out += f'<p class="soft">Does not apply: {escape(names)}.</p>'
    if attacks.get("membership_inference_score") is not None:
        score = attacks["membership_inference_score"]
        out += (
            f"<p>Membership-inference score (squared L2 difference of the two distance densities, "
            f"004 eq. 69): <strong>{score:.4f}</strong>; 0 means that distances tell nothing.</p>"
        )
    if baseline:
        out += f"<p>For comparison: {escape(baseline)}</p>"
    return out + _guarantees(attacks.get("guarantees", [])) + _charts(roc)


def _attack_row(one: dict[str, Any]) -> str:
    low, high = one["auc_interval"]
    caught = one["tpr_at"].get("0.01")
    share = "" if caught is None else f"{100 * caught:.1f} %"
    return (
        f"<tr><td>{escape(_attack_name(one['name']))}</td><td class='n'>{one['auc']:.3f}</td>"
        f"<td>{svg.interval_bar(one['auc'], (low, high))}{low:.3f} to {high:.3f}</td>"
        f"<td class='n'>{one['advantage']:+.3f}</td><td class='n wide'>{share}</td></tr>"
    )


def _guarantees(rows: Sequence[dict[str, Any]]) -> str:
    """The claim beside what an audit found at least."""
    if not rows:
        return ""
    cells = ""
    for row in rows:
        value = "no bound" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
        delta = "" if row["delta"] is None else f"{row['delta']:.3g}"
        cells += (
            f"<tr><td>{escape(row['kind'])}</td><td class='n'>{value}</td><td class='n'>{delta}"
            f"</td><td>{escape(row['unit'])}</td><td class='wide'>{escape(row['neighbours'])}</td>"
            f"<td>{escape(row['note'])}</td></tr>"
        )
    return (
        '<h3>Claim and measurement</h3><div class="scroll" tabindex="0" role="region" '
        'aria-label="Claim and measurement"><table><thead><tr><th>kind</th><th class="n">ε</th>'
        '<th class="n">δ</th><th>per</th><th class="wide">neighbours</th><th>note</th></tr></thead>'
        f"<tbody>{cells}</tbody></table></div>"
    )


def _charts(charts: Sequence[Chart]) -> str:
    if not charts:
        return ""
    return f'<div class="charts">{"".join(_figure(chart) for chart in charts)}</div>'


def _figure(chart: Chart) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-series="{index}" class="s{index % 5}">'
        f'<svg viewBox="0 0 26 8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" '
        f'stroke-dasharray="{svg.DASHES[index % len(svg.DASHES)] or "none"}"/></svg>'
        f"{escape(series.name)}</button>"
        for index, series in enumerate(chart.series)
    )
    heads = "".join(f'<th class="n">{escape(series.name)}</th>' for series in chart.series)
    rows = "".join(
        f'<tr><td class="n">{svg.number(x)}</td>'
        + "".join(f'<td class="n">{svg.number(series.y[i])}</td>' for series in chart.series)
        + "</tr>"
        for i, x in enumerate(chart.x)
    )
    return (
        f'<figure data-chart="{escape(chart.key)}"><h3>{escape(chart.title)}</h3>'
        f'{svg.draw(chart)}<output class="readout" aria-live="polite"></output>'
        f'<div class="legend" role="group" aria-label="Show or hide">{buttons}</div>'
        f"<figcaption>{escape(chart.caption)}</figcaption>"
        f"<details{' data-long' if len(chart.x) > 20 else ''}><summary>Numbers</summary>"
        '<div class="scroll"><table><thead><tr>'
        f'<th class="n">{escape(chart.x_label)}</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div></details></figure>"
    )


def _accuracy(accuracy: Accuracy | None) -> str:
    if accuracy is None or not accuracy.per_class:
        return ""
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{100 * value:.1f} %</td></tr>'
        for name, value in accuracy.per_class.items()
    )
    return (
        f"<p>{100 * accuracy.value:.1f} % of {accuracy.n_rows} rows that were not trained on are "
        "labelled right.</p><details><summary>By class</summary><table><thead><tr><th>class</th>"
        f'<th class="n">labelled right</th></tr></thead><tbody>{rows}</tbody></table></details>'
    )


def _samples(samples: Samples | None) -> str:
    if samples is None:
        return ""
    names = list(samples.stages)
    chosen = names.index(samples.chosen) if samples.chosen in names else 0
    listed = escape(safe_json(names))
    out = (
        "<p>The same rows as they are, after the noise, and fabricated from the noised rows of "
        "their class. Move the slider to another ε.</p>"
        f'<div class="pick"><label for="samples-slider">privacy of the rows shown: '
        f'<strong id="samples-epsilon">{escape(names[chosen])}</strong></label>'
        f'<input id="samples-slider" type="range" min="0" max="{len(names) - 1}" step="1" '
        f'value="{chosen}" data-samples="{listed}"></div>'
    )
    out += _stage("original", samples.original, samples)
    for index, (name, stages) in enumerate(samples.stages.items()):
        hidden = "" if index == chosen else " hidden"
        block = "".join(_stage(stage, rows, samples) for stage, rows in stages.items())
        out += f'<div data-epsilon="{escape(name)}"{hidden}>{block}</div>'
    return out


def _stage(name: str, rows: Any, samples: Samples) -> str:
    if samples.shape is not None:
        picture = png_address(strip(rows, samples.shape, samples.domain))
        text = escape(f"{len(rows)} rows, {name}")
        shown = f'<img alt="{text}" src="{picture}">'
    else:
        heads = "".join(f'<th class="n">{escape(str(c))}</th>' for c in samples.columns)
        body = "".join(
            "<tr>" + "".join(f'<td class="n">{svg.number(float(v))}</td>' for v in row) + "</tr>"
            for row in rows
        )
        shown = (
            f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody>'
            "</table></div>"
        )
    return f'<div class="stage"><span>{escape(name)}</span>{shown}</div>'


def _measures(report: Report) -> str:
    if not report.measures:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{escape(value)}</td><td>{escape(text)}</td></tr>"
        for name, (value, text) in report.measures.items()
    )
    return (
        '<div class="scroll"><table><thead><tr><th>measure</th><th class="n">value</th>'
        f"<th>meaning</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _reproduce(report: Report) -> str:
    if not report.reproduce:
        return ""
    lines = escape("\n".join(report.reproduce))
    return (
        "<p>The noise of a private run comes from a cryptographic source and cannot be repeated; "
        "figures of another run differ by chance.</p>"
        f"<pre><code>{lines}</code></pre>"
    )
