"""Members are passes, and the classifier keeps scikit-learn's conventions."""

import copy
import pathlib
import pickle
import tempfile

import numpy as np
import pytest

import ckd

pytest.importorskip("sklearn")

import joblib  # noqa: E402
from scipy.sparse import csr_matrix  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402
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
        BaggingClassifier(GradientBoostingClassifier(n_estimators=3), 4, random_state=1),
        make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=1)),
        make_pipeline(FunctionTransformer(csr_matrix, accept_sparse=True), ExtraTreesClassifier(10, random_state=1)),
        BaggingClassifier(make_pipeline(StandardScaler(), LogisticRegression()), 10, random_state=1),
        GridSearchCV(make_pipeline(StandardScaler(), RandomForestClassifier(10)), {"randomforestclassifier__max_depth": [2, 3]}, cv=2),
    ],
    ids=lambda e: type(e).__name__,
)
def test_members(data, estimator):
    X, y = data
    fitted = clone(estimator).fit(X[:600], y[:600])
    passes = ckd.sklearn.members(fitted, X[600:])
    assert passes.shape[1:] == (600, 3) and len(passes) in (2, 4, 10)
    assert np.allclose(passes.mean(axis=0), fitted.predict_proba(X[600:]), atol=1e-12)


def test_classes_that_a_member_never_saw():
    X, y = np.arange(40.0).reshape(-1, 1), np.array([0] * 38 + [7, 9])
    fitted = BaggingClassifier(KNeighborsClassifier(1), 20, max_samples=5, random_state=1).fit(X, y)
    passes = ckd.sklearn.members(fitted, X)
    assert any(len(member.classes_) < 3 for member in fitted.estimators_)
    assert passes.shape == (20, 40, 3) and np.allclose(passes.mean(axis=0), fitted.predict_proba(X))


@pytest.mark.parametrize(
    "estimator, words",
    [
        (LogisticRegression(), "has no members that predict classes"),
        (GradientBoostingClassifier(n_estimators=2), "correct one another.*BaggingClassifier"),
        (HistGradientBoostingClassifier(max_iter=2), "correct one another"),
        (AdaBoostClassifier(n_estimators=2), "correct one another"),
        (make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=2)), "correct one another"),
        (VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier())]), "voting='soft'"),
        (BaggingClassifier(LinearSVC(), 2), "no predict_proba"),
        (OneVsRestClassifier(LogisticRegression()), "not the mean of its members"),
        (StackingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier())], cv=2), "not the mean of its members"),
        (
            VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier())], voting="soft", weights=[3, 1]),
            "without weights",
        ),
    ],
    ids=lambda e: type(e).__name__,
)
def test_no_members(data, estimator, words):
    """One-vs-rest and stacking have estimators_ too, which were taken as members without a word."""
    X, y = data
    fitted = clone(estimator).fit(X[:300], y[:300])
    with pytest.raises(TypeError, match=words):
        ckd.sklearn.members(fitted, X)


@pytest.mark.parametrize(
    "labels, critical, names",
    [
        (["normal", "suspect", "pathologic"], ["suspect"], ["normal", "pathologic", "suspect"]),
        (["10", "9", "a, b"], ["a, b"], ["10", "9", "a, b"]),
        ([7, 9, 11], [9], ["class-7", "class-9", "class-11"]),
        (["fine", " ", "new\nline"], ["fine"], ["class-0", "fine", "class-2"]),
    ],
    ids=["texts", "numbers as texts", "numbers", "labels that are no names"],
)
def test_names(data, labels, critical, names):
    """Policies had class-0 and the model's name model, which nobody could read, or serve beside another."""
    X, y = data
    y = np.array(labels)[np.searchsorted(["normal", "pathologic", "suspect"], y)]
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(30, random_state=1))
    classifier = ckd.sklearn.DeferringClassifier(pipeline, critical=critical).fit(X[:400], y[:400])
    classifier.calibrate(X[400:800], y[400:800])
    with tempfile.TemporaryDirectory() as folder:
        with ckd.Daemon(classifier.calibration_.write(pathlib.Path(folder, "policy.yaml"))) as daemon, daemon.client() as client:
            (model,) = client.models()
    assert sorted(model.classes) == sorted(names) and model.policy.model == "RandomForestClassifier"
    assert model.critical == tuple(name for name, label in zip(model.classes, classifier.classes_) if label in critical)
    if names[0] == "normal":  # a calibration takes seconds
        classifier.calibrate(X[400:800], y[400:800], coverage=0.7, name="fetal-health")
        assert "fetal-health" in classifier.policy_


def test_bad_critical(data):
    X, y = data
    for critical, error, words in (
        (["suspekt"], ValueError, r"critical\[0\] is 'suspekt', expected one of .*did you mean 'suspect'"),
        (["suspect", 3], ValueError, r"critical\[1\] is 3"),
        ("suspect", TypeError, "expected a list"),
        ([], ValueError, "names 0 of the 3 classes"),
        (["normal", "suspect", "pathologic"], ValueError, "and not all"),
    ):
        with pytest.raises(error, match=words):
            ckd.sklearn.DeferringClassifier(RandomForestClassifier(2), critical=critical).fit(X[:100], y[:100])


def test_deferring(data, tmp_path):
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
    joblib.dump(classifier, tmp_path / "classifier")
    for again in pickle.loads(pickle.dumps(classifier)), copy.deepcopy(classifier), joblib.load(tmp_path / "classifier"):
        assert (again.defer(rest) == deferred).all() and str(again.calibration_) == str(classifier.calibration_)
    assert "coverage 0.7" in classifier.calibration_["objective"]
    # The daemon decides alike.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "policy.yaml")
        classifier.calibration_.write(path)
        with ckd.Daemon(path) as daemon, daemon.client() as client:
            passes = ckd.sklearn.members(classifier.estimator_, rest)
            results = client.decompose("RandomForestClassifier", passes)
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
    other = clone(classifier)
    assert other.get_params()["estimator__n_estimators"] == 5 and other.critical == ["suspect"]
    assert other.set_params(estimator__n_estimators=7).estimator.n_estimators == 7
    assert cross_val_score(other, X, y, cv=2).min() > 0.5


def test_check_estimator():
    check_estimator(ckd.sklearn.DeferringClassifier(RandomForestClassifier(5, random_state=1)))
