"""Dropout alone is on while a sampler computes, and nothing is computed in vain."""

import threading

import numpy as np
import pytest

import ckd

torch = pytest.importorskip("torch")

import ckd.torch  # noqa: E402


def network(dropout=0.3):
    return torch.nn.Sequential(
        torch.nn.Linear(5, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(16, 3)
    )


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("training", [True, False])
def test_dropout_alone_is_on(training):
    model = network().train(training)
    model[0].training = not training  # a mode of its own is kept too
    before, statistics = modes(model), model[1].running_mean.clone()
    seen = []
    model[4].register_forward_hook(lambda *_: seen.append(modes(model)))
    passes = ckd.torch.mc_dropout(model, 20)(torch.randn(8, 5))
    assert passes.shape == (20, 8, 3) and passes.dtype == np.float32
    assert np.allclose(passes.sum(axis=2), 1, atol=1e-5)
    assert len(np.unique(passes[:, 0, 0])) > 1
    assert all(s == [False, False, False, False, True, False] for s in seen) and len(seen) == 20
    assert modes(model) == before and torch.equal(model[1].running_mean, statistics)


def test_modes_are_restored_after_an_exception():
    model = network()
    model[2].forward = lambda x: 1 / 0
    before = modes(model)
    with pytest.raises(ZeroDivisionError):
        ckd.torch.mc_dropout(model)(torch.randn(2, 5))
    assert modes(model) == before


def test_modes_stay_while_another_thread_samples():
    model = network()
    inside, leave = threading.Event(), threading.Event()

    def wait(*_):
        inside.set()
        leave.wait(60)

    hook = model[0].register_forward_hook(wait)
    thread = threading.Thread(target=lambda: ckd.torch.mc_dropout(model, 1)(torch.randn(2, 5)))
    thread.start()
    assert inside.wait(60)
    hook.remove()
    ckd.torch.mc_dropout(model, 1)(torch.randn(2, 5))
    assert modes(model) == [False, False, False, False, True, False]
    leave.set()
    thread.join()
    assert modes(model) == [True] * 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: (network().double(), torch.randn(4, 5).double()),
        lambda: (network().bfloat16(), torch.randn(4, 5).bfloat16()),
        lambda: (network(), torch.randn(4, 5, requires_grad=True)),
    ],
    ids=["double", "bfloat16", "requires grad"],
)
def test_precisions(make):
    model, batch = make()
    passes = ckd.torch.mc_dropout(model, 3)(batch)
    assert passes.dtype == np.float32 and np.allclose(passes.sum(axis=2), 1, atol=1e-5)


def test_half_precision_outputs():
    """Half precision that the CPU cannot compute with still comes out of a model on an accelerator."""

    class Half(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x).half()

    passes = ckd.torch.mc_dropout(Half(), 3)(torch.randn(4, 3))
    assert np.allclose(passes.sum(axis=2), 1, atol=1e-5)


def test_arguments_and_outputs():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.last = torch.nn.Dropout(0.5), torch.nn.Linear(4, 3)

        def forward(self, a, b):
            return self.last(self.drop(a + b)), "more"

    a, b = torch.randn(6, 4), torch.randn(6, 4)
    named, model = ckd.torch.mc_dropout(Named(), 2), Named()
    assert named({"a": a, "b": b}).shape == named((a, b)).shape == (2, 6, 3)
    probabilities = ckd.torch.mc_dropout(torch.nn.Sequential(model.drop, torch.nn.Softmax(-1)), 2, output="probabilities")
    assert np.allclose(probabilities(torch.randn(2, 3)).sum(axis=2), 1, atol=1e-5)
    own = ckd.torch.mc_dropout(torch.nn.Sequential(model.drop), 2, output=lambda x: x.abs() / x.abs().sum(-1, keepdim=True))
    assert own(torch.ones(2, 3) * 2).shape == (2, 2, 3)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: ckd.torch.mc_dropout(torch.nn.Linear(2, 2)), "found 0 dropout layers that drop anything in Linear"),
        (lambda: ckd.torch.mc_dropout(network(0.0)), "found 1 dropout layers that drop anything"),
        (lambda: ckd.torch.mc_dropout(network(), 0), "passes is 0"),
        (lambda: ckd.torch.mc_dropout(network(), output="logit"), "output is 'logit'"),
        (lambda: ckd.torch.ensemble([network()]), "found 1 members"),
    ],
)
def test_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_ensemble():
    members = [network() for _ in range(4)]
    members[1].eval()
    before = [modes(m) for m in members]
    batch = torch.randn(7, 5)
    passes = ckd.torch.ensemble(members)(batch)
    assert [modes(m) for m in members] == before
    for values, member in zip(passes, members):
        member.eval()
        assert np.allclose(values, torch.softmax(member(batch), -1).detach().numpy(), atol=1e-6)


def test_decide(client):
    """The model computes its passes once, and the daemon's answer is that for these passes."""
    model, batch = network(), torch.randn(9, 5)
    sizes = []
    model[4].register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    sampler = ckd.torch.mc_dropout(model, 30)
    with client.session("fetal-health", accept_settled=True) as session:
        torch.manual_seed(1)
        results = sampler.decide(session, [str(i) for i in range(9)], batch)
        assert sizes == [9] * 30
        batches = [([f"{n}-{i}" for i in range(9)], batch) for n in range(2)]
        assert [len(part) for part in sampler.decide_batches(session, batches)] == [9, 9]
    torch.manual_seed(1)
    for result, want in zip(results, client.decompose("fetal-health", sampler(batch))):
        assert result.c.tobytes() == want.c.tobytes() and result.action == want.action


def test_answered_inputs_are_left_out():
    """The rows that a session asks for are those that the model computes."""
    model = network()
    sizes = []
    model[4].register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))

    class Session:
        def decide(self, ids, forward, passes, contexts):
            return [forward(np.arange(9)).shape, forward(np.array([1, 4])).shape]

    assert ckd.torch.mc_dropout(model, 30).decide(Session(), "abcdefghi", torch.randn(9, 5)) == [(9, 3), (2, 3)]
    assert sizes == [9, 2]
    with pytest.raises(ValueError, match="inputs in one batch"):
        ckd.torch.mc_dropout(model).decide(Session(), "ab", (torch.randn(2, 5), torch.randn(3, 5)))
