"""Starts one daemon for the tests. They run against the program in CKD_BINARY, or the one on the PATH."""

import pathlib

import numpy as np
import pytest

import ckd

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLICY = ROOT / "deploy/policy/fetal-health.yaml"
RECORDINGS = ROOT / "internal/recordings"


@pytest.fixture(scope="session")
def daemon():
    with ckd.Daemon(POLICY) as started:
        yield started


@pytest.fixture
def client(daemon):
    with daemon.client() as made:
        yield made


@pytest.fixture(scope="session")
def passes():
    """Real passes of 40 inputs, [passes, inputs, classes]."""
    return np.load(RECORDINGS / "ctg-mcdropout.passes.npy")[:, :40].copy()
