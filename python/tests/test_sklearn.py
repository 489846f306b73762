"""Members are passes, and the classifier keeps scikit-learn's conventions."""

import pathlib
import pickle
import tempfile

import numpy as np
import pytest

import ckd

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import ckd.sklearn  # noqa: E402


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(
        1200, n_features=8, n_informative=5, n_classes=3, weights=[0.7, 0.2], flip_y=0.1, random_state=1
    )
    return X, np.array(["normal", "suspect", "pathologic"])[y]


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(10, random_state=1),
        ExtraTreesClassifier(10, random_state=1),
        BaggingClassifier(DecisionTreeClassifier(max_depth=3), 10, max_features=0.5, random_state=1),
        VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))], voting="soft"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_members(data, estimator):
    X, y = data
    fitted = clone(estimator).fit(X[:600], y[:600])
    passes = ckd.sklearn.members(fitted, X[600:])
    assert passes.shape == (len(fitted.estimators_), 600, 3)
    assert np.allclose(passes.mean(axis=0), fitted.predict_proba(X[600:]), atol=1e-12)


def test_classes_that_a_member_never_saw():
    X, y = np.arange(40.0).reshape(-1, 1), np.array([0] * 38 + [7, 9])
    fitted = BaggingClassifier(KNeighborsClassifier(1), 20, max_samples=5, random_state=1).fit(X, y)
    passes = ckd.sklearn.members(fitted, X)
    assert any(len(member.classes_) < 3 for member in fitted.estimators_)
    assert passes.shape == (20, 40, 3) and np.allclose(passes.mean(axis=0), fitted.predict_proba(X))


def test_no_members(data):
    X, y = data
    for estimator in (LogisticRegression(), GradientBoostingClassifier(n_estimators=2)):
        with pytest.raises(TypeError, match="has no members that predict classes"):
            ckd.sklearn.members(estimator.fit(X[:100], y[:100]), X)


def test_deferring(data):
    X, y = data
    classifier = ckd.sklearn.DeferringClassifier(
        RandomForestClassifier(50, min_samples_leaf=5, random_state=1), critical=["suspect", "pathologic"]
    )
    classifier.fit(X[:400], y[:400])
    with pytest.raises(ValueError, match="expected calibrate"):
        classifier.defer(X)
    assert classifier.calibrate(X[400:800], y[400:800], coverage=0.7) is classifier
    rest = X[800:]
    deferred = classifier.defer(rest)
    assert 0.1 < deferred.mean() < 0.5, deferred.mean()
    predicted = classifier.predict(rest)
    right = predicted == y[800:]
    assert right[~deferred].mean() > right.mean()
    classifier.set_params(deferred="a person")
    shown = classifier.predict(rest)
    assert ((shown == "a person") == deferred).all() and (shown[~deferred] == predicted[~deferred]).all()
    again = pickle.loads(pickle.dumps(classifier))
    assert (again.defer(rest) == deferred).all()
    assert "coverage 0.7" in classifier.calibration_["objective"]
    # The daemon decides alike.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "policy.yaml")
        classifier.calibration_.write(path)
        with ckd.Daemon(path) as daemon, daemon.client() as client:
            passes = ckd.sklearn.members(classifier.estimator_, rest)
            results = client.decompose("model", passes)
    assert [not r.retained for r in results] == deferred.tolist()
    classifier.fit(X[:400], y[:400])
    assert classifier.policy_ == ""


def test_labels_that_fit_has_not_seen(data):
    X, y = data
    classifier = ckd.sklearn.DeferringClassifier(RandomForestClassifier(5)).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="labels that fit has not seen: other"):
        classifier.calibrate(X[:2], ["normal", "other"])


def test_conventions(data):
    X, y = data
    classifier = ckd.sklearn.DeferringClassifier(RandomForestClassifier(5), critical=["suspect"])
    copy = clone(classifier)
    assert copy.get_params()["estimator__n_estimators"] == 5 and copy.critical == ["suspect"]
    assert copy.set_params(estimator__n_estimators=7).estimator.n_estimators == 7
    assert cross_val_score(copy, X, y, cv=2).min() > 0.5


def test_check_estimator():
    check_estimator(ckd.sklearn.DeferringClassifier(RandomForestClassifier(5, random_state=1)))
