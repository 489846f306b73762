"""Takes the members of scikit-learn's ensembles as passes, and defers what they are unsure about.

    classifier = ckd.sklearn.DeferringClassifier(RandomForestClassifier(), critical=["suspect", "pathologic"])
    classifier.fit(X, y).calibrate(X_held_out, y_held_out)
    classifier.predict(X_new), classifier.defer(X_new)
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils.validation import check_is_fitted

from ._offline import Calibration, calibrate, decompose

__all__ = ["DeferringClassifier", "members"]


def members(estimator: Any, X: Any) -> npt.NDArray[np.float64]:
    """Returns the class probabilities of each member of a fitted ensemble, [members, inputs, classes].

    For bagging, forests, soft voting, and any other whose members are in estimators_. Classes are in
    the order of estimator.classes_; one that a member never saw has probability 0 there.
    """
    check_is_fitted(estimator)
    fitted = getattr(estimator, "estimators_", None)
    if fitted is None or isinstance(fitted, np.ndarray) and fitted.ndim > 1:
        raise TypeError(f"{type(estimator).__name__} has no members that predict classes, expected bagging, a forest or voting")
    X = np.asarray(X) if not hasattr(X, "iloc") else X.to_numpy()
    features = getattr(estimator, "estimators_features_", [None] * len(fitted))
    out = np.zeros((len(fitted), len(X), len(estimator.classes_)))
    for s, (member, some) in enumerate(zip(fitted, features)):
        # Members learned the numbers of classes, in place of their names.
        columns = np.asarray(member.classes_).astype(int)
        out[s][:, columns] = member.predict_proba(X if some is None else X[:, some])
    return out


class DeferringClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier that says which inputs a person should see.

    estimator is an ensemble; a forest of 100 trees by default. critical names the classes that must
    not be missed; without it, all but the most frequent. calibrate chooses the policy on held-out
    inputs, by the objective in the settings of ckd.calibrate, as in coverage=0.8; see docs/calibrate.md.
    deferred, if not None, is what predict returns for an input that a person should see.
    """

    def __init__(self, estimator: Any = None, *, critical: Sequence[Any] | None = None, deferred: Any = None) -> None:
        self.estimator, self.critical, self.deferred = estimator, critical, deferred

    def fit(self, X: Any, y: Any, **fit_params: Any) -> DeferringClassifier:
        """Fits a copy of the estimator. What was calibrated before is forgotten."""
        estimator = RandomForestClassifier() if self.estimator is None else clone(self.estimator)
        self.estimator_ = estimator.fit(X, y, **fit_params)
        self.classes_ = self.estimator_.classes_
        self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        self.policy_: str = ""
        self.calibration_: Calibration | None = None
        return self

    def calibrate(self, X: Any, y: Any, **settings: Any) -> DeferringClassifier:
        """Chooses which inputs to defer, on inputs that fit has not seen.

        settings are those of ckd.calibrate, with an objective; coverage=0.8 without any.
        """
        passes = members(self.estimator_, X)
        numbers = {label: k for k, label in enumerate(self.classes_)}
        unknown = sorted({str(label) for label in np.asarray(y) if label not in numbers})
        if unknown:
            raise ValueError(f"found labels that fit has not seen: {', '.join(unknown)}")
        labels = np.array([numbers[label] for label in np.asarray(y)])
        if self.critical is None:
            usual = int(np.bincount(labels, minlength=len(numbers)).argmax())
            critical = [k for k in range(len(numbers)) if k != usual]
        else:
            critical = [numbers[label] for label in self.critical]
        names = [f"class-{k}" for k in range(len(numbers))]  # labels may have characters that names may not
        objective = settings or {"coverage": 0.8}
        self.calibration_ = calibrate(
            passes, labels, classes=names, critical=[names[k] for k in critical], name="model", **objective
        )
        self.policy_ = self.calibration_.policy
        return self

    def predict(self, X: Any) -> Any:
        """Returns the class of each input, or deferred for those that a person should see."""
        check_is_fitted(self, "estimator_")
        predicted = self.estimator_.predict(X)
        if self.deferred is None or not self.policy_:
            return predicted
        out = predicted.astype(object)
        out[self.defer(X)] = self.deferred
        return out

    def predict_proba(self, X: Any) -> Any:
        """Returns the mean of the members' class probabilities, as the estimator does."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X)

    def defer(self, X: Any) -> npt.NDArray[np.bool_]:
        """Returns for each input whether a person should see it: everything that is not retained.

        The policy decides as the daemon would. It needs calibrate.
        """
        return np.array([answer.get("decision", {}).get("action") != "retain" for answer in self.explain(X)], dtype=bool)

    def explain(self, X: Any) -> list[dict[str, Any]]:
        """Returns what ckd decompose says of each input. Classes are by number, in the order of classes_."""
        check_is_fitted(self, "estimator_")
        if not self.policy_:
            raise ValueError("there is no policy, expected calibrate(X, y) with held-out inputs first")
        with tempfile.TemporaryDirectory(prefix="ckd-") as folder:
            policy = pathlib.Path(folder, "policy.yaml")
            policy.write_text(self.policy_, encoding="utf-8")
            return decompose(members(self.estimator_, X), policy=policy)
