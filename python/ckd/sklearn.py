"""Takes the members of scikit-learn's ensembles as passes, and defers what they are unsure about.

    classifier = ckd.sklearn.DeferringClassifier(RandomForestClassifier(), critical=["suspect", "pathologic"])
    classifier.fit(X, y).calibrate(X_held_out, y_held_out)
    classifier.predict(X_new), classifier.defer(X_new)
"""

from __future__ import annotations

import difflib
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._offline import Calibration, calibrate, decompose

__all__ = ["DeferringClassifier", "members"]


def members(estimator: Any, X: Any) -> npt.NDArray[np.float64]:
    """Returns the class probabilities of each member of a fitted ensemble, [members, inputs, classes].

    For bagging, forests, soft voting, any other whose probabilities are the mean of its members', and
    pipelines and searches that end in one. Classes are in the order of estimator.classes_; one that a
    member never saw has probability 0 there.
    """
    check_is_fitted(estimator)
    if hasattr(estimator, "best_estimator_"):
        return members(estimator.best_estimator_, X)
    if isinstance(estimator, Pipeline):
        return members(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    name, fitted = type(estimator).__name__, getattr(estimator, "estimators_", None)
    if any(word in name for word in ("Boost", "LGBM", "XGB")):
        raise TypeError(
            f"{name}: its members correct one another, and none of them predicts the classes, so they are no passes;"
            f" expected bagging of it, as in BaggingClassifier({name}(), 10), whose members are"
        )
    if fitted is None or isinstance(fitted, np.ndarray) and fitted.ndim > 1:
        raise TypeError(f"{name} has no members that predict classes, expected bagging, a forest or soft voting")
    if any(not hasattr(member, "predict_proba") for member in [estimator, *fitted]):
        raise TypeError(f"{name} or its members have no predict_proba, expected voting='soft', and members with probabilities")
    plain = X if issparse(X) else X.to_numpy() if hasattr(X, "iloc") else np.asarray(X)
    features = getattr(estimator, "estimators_features_", [None] * len(fitted))
    out = np.zeros((len(fitted), plain.shape[0], len(estimator.classes_)))
    for s, (member, some) in enumerate(zip(fitted, features)):
        values = X if hasattr(member, "feature_names_in_") else plain
        if len(member.classes_) <= len(estimator.classes_):
            out[s][:, _columns(member, estimator)] = member.predict_proba(values if some is None else values[:, some])
    known = isinstance(estimator, (RandomForestClassifier, ExtraTreesClassifier, BaggingClassifier))
    if not known and not np.allclose(out.mean(axis=0), estimator.predict_proba(X), atol=1e-6):
        raise TypeError(
            f"{name}: its probabilities are not the mean of its members', so they are no passes of it;"
            " expected bagging, a forest, or soft voting without weights"
        )
    return out


def _columns(member: Any, estimator: Any) -> Any:
    """Returns the columns of a member's classes. Members of most learned numbers in place of names."""
    classes = np.asarray(member.classes_)
    return classes.astype(int) if classes.dtype.kind in "fiu" else np.searchsorted(estimator.classes_, classes)


class DeferringClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier that says which inputs a person should see.

    estimator is an ensemble that members takes, or a pipeline that ends in one; a forest of 100 trees by
    default. critical names the classes that must
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
        self._critical()  # says at once what is wrong with it
        for name in ("n_features_in_", "feature_names_in_"):  # an estimator of texts has none
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self.policy_: str = ""
        self.calibration_: Calibration | None = None
        return self

    def calibrate(self, X: Any, y: Any, **settings: Any) -> DeferringClassifier:
        """Chooses which inputs to defer, on inputs that fit has not seen.

        settings are those of ckd.calibrate, with an objective; coverage=0.8 without any. The policy has
        the names of the classes, class-7 for the number 7, and that of the estimator's class as the
        model's, unless name=... is given.
        """
        check_is_fitted(self, "estimator_")
        passes = members(self.estimator_, X)
        numbers = {label: k for k, label in enumerate(self.classes_)}
        unknown = sorted({str(label) for label in np.asarray(y) if label not in numbers})
        if unknown:
            raise ValueError(f"found labels that fit has not seen: {', '.join(unknown)}")
        labels = np.array([numbers[label] for label in np.asarray(y)])
        critical = self._critical()
        if critical is None:
            usual = int(np.bincount(labels, minlength=len(numbers)).argmax())
            critical = [k for k in range(len(numbers)) if k != usual]
        names = np.array([_name(label, k) for k, label in enumerate(self.classes_)])
        self.calibration_ = calibrate(
            passes, names[labels], classes=names, critical=names[critical],
            **{"name": type(_last(self.estimator_)).__name__, **(settings or {"coverage": 0.8})},
        )  # fmt: skip
        self.policy_ = self.calibration_.policy
        return self

    def _critical(self) -> list[int] | None:
        """Returns the numbers of the critical classes, or None where they are not named."""
        if self.critical is None:
            return None
        if isinstance(self.critical, str):
            raise TypeError(f"critical is {self.critical!r}, expected a list of classes, as in [{self.critical!r}]")
        numbers = {label: k for k, label in enumerate(self.classes_)}
        texts = {str(label): label for label in self.classes_}
        for i, label in enumerate(self.critical):
            if label not in numbers:
                near = difflib.get_close_matches(str(label), texts, 1)
                hint = f", did you mean {texts[near[0]]!r}?" if near else ""
                raise ValueError(f"critical[{i}] is {label!r}, expected one of the classes {', '.join(texts)}{hint}")
        found = sorted({numbers[label] for label in self.critical})
        if not 0 < len(found) < len(numbers):
            raise ValueError(f"critical names {len(found)} of the {len(numbers)} classes, expected at least one, and not all")
        return found

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


def _last(estimator: Any) -> Any:
    """Returns the estimator in which a pipeline or a search ends."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return _last(estimator[-1]) if isinstance(estimator, Pipeline) else estimator


def _name(label: Any, number: int) -> str:
    """Returns a class's name for the policy: its label, unless names may not have its characters."""
    if not isinstance(label, str):
        return f"class-{label}"
    return str(label) if label.isprintable() and label == label.strip() != "" else f"class-{number}"
