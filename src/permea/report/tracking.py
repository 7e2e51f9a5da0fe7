"""Reports in MLflow: figures as metrics, the promise as parameters, the report as a file."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

from permea.report.assessment import assessment_json
from permea.report.content import Report
from permea.report.model_card import model_card
from permea.report.page import render
from permea.storage import save

_INCLUDE = "include"


def log_report(
    report: Report, model: Any = None, *, private_rows: str | None = None, prefix: str = "permea"
) -> None:
    """Log a report, and the model it is about, to the active MLflow run.

    Logged are the promise of the weakest certificate (parameters), accuracy, AUROC, ε per record
    and what the strongest attack reached (metrics), the status (a tag), and as files the report,
    the assessment, the model card, every certificate and the model.

    Parameters
    ----------
    report : Report
    model : fitted permea model, optional
        Saved as ``model.permea``; one that holds private rows is refused.
    private_rows : "include", optional
        The word that allows a report with parts that were computed from private rows: whoever
        reads the tracking server reads them too.
    prefix : str
        In front of all names, with a dot, and the folder of the files.

    Raises
    ------
    ImportError
        When MLflow is not installed: ``pip install 'permea[mlflow]'``.
    ValueError
        When the report has unprotected parts and nothing allows them.
    """
    try:
        import mlflow
    except ImportError as error:
        raise ImportError(
            "Logging to MLflow needs mlflow, which is not installed. Install it with: "
            "pip install 'permea[mlflow]'"
        ) from error
    if report.computed_from_private_rows and private_rows != _INCLUDE:
        raise ValueError(
            "Parts of this report were computed from private rows, and no noise protects them: "
            f"{', '.join(report.computed_from_private_rows)}. Whoever reads the tracking server "
            'would read them. Leave them out, or say private_rows="include".'
        )
    mlflow.log_params({f"{prefix}.{name}": value for name, value in promise_of(report).items()})
    mlflow.log_metrics({f"{prefix}.{name}": value for name, value in figures_of(report).items()})
    mlflow.set_tag(f"{prefix}.status", report.status)
    mlflow.log_text(render(report), f"{prefix}/report.html")
    mlflow.log_text(model_card(report), f"{prefix}/model-card.md")
    mlflow.log_dict(json.loads(assessment_json(report)), f"{prefix}/assessment.json")
    for number, (name, paper) in enumerate(report.certificates.items()):
        mlflow.log_dict({"name": name, **paper.to_dict()}, f"{prefix}/certificate-{number}.json")
    if model is not None:
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifact(str(save(model, Path(folder, "model.permea"))), prefix)


def promise_of(report: Report) -> dict[str, Any]:
    """The promise of the weakest certificate, as parameters.

    Examples
    --------
    >>> promise_of(Report(title="bare"))
    {'unit': 'none'}
    """
    weakest = report.weakest
    if weakest is None:
        return {"unit": "none"}
    privacy = weakest.privacy
    return {
        "unit": privacy.unit,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "released": weakest.released or f"{weakest.n_rows} rows of {weakest.n_columns} columns",
    }


def figures_of(report: Report) -> dict[str, float]:
    """What was measured, as metrics; parts that were not measured are left out."""
    found: dict[str, float | None] = {}
    if report.accuracy is not None:
        found = {"accuracy": report.accuracy.value, "auroc": report.accuracy.auroc}
    if report.weakest is not None:
        found |= {"record_epsilon": report.weakest.record_epsilon}
    if report.strongest_attack is not None:
        found |= {"attack_auc": report.strongest_attack["auc"]}
    return {name: one for name, one in found.items() if one is not None and math.isfinite(one)}
