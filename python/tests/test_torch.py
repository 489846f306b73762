"""What ckd.torch samples is what the model samples in training mode, and the model itself stays as it is."""

import collections
import functools
import re
import sys
import threading
import types

import numpy as np
import pytest
from conftest import ROOT

import ckd

torch = pytest.importorskip("torch")

import ckd.torch  # noqa: E402

F, nn = torch.nn.functional, torch.nn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def network(dropout=0.3):
    return nn.Sequential(nn.Linear(5, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


class Net(nn.Module):
    """Calls forward on its layers, and counts what is asked of it."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.compute = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.compute(self, x)


def sequence(layer, take):
    """Returns a network of a layer for [inputs, 16] as sequences of 4."""
    return Net(lambda net, x: net.last(take(net.layer, x.view(-1, 4, 4)) * 4), layer=layer, last=nn.Linear(8, 3))


class OwnNorm(nn.Module):
    """Normalises as batch normalisation does, and counts, without being one of PyTorch's."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(16))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.steps += 1
        if self.training:
            self.average.mul_(0.9).add_(0.1 * x.mean(0))
            return x - x.mean(0)
        return x - self.average


class MaskInBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(16))

    def forward(self, x):
        if self.training:
            self.mask = torch.bernoulli(torch.full_like(self.mask, 0.5)) * 2
            return x * self.mask
        return x


class Merging(nn.Module):
    """Merges weights for evaluation as low-rank adapters do, by its method train."""

    def __init__(self):
        super().__init__()
        self.weight, self.low, self.merged = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(16, 16)), False

    def train(self, mode=True):
        super().train(mode)
        if self.merged == mode:
            self.weight.data += -self.low if mode else self.low
            self.merged = not mode
        return self

    def forward(self, x):
        return F.linear(x, self.weight if self.merged else self.weight + F.dropout(self.low, 0.2, self.training))


class Frozen(nn.Sequential):
    """Keeps its first layer in evaluation mode, as people do with a backbone."""

    def train(self, mode=True):
        super().train(mode)
        self[0].eval()
        return self


class Compiled(nn.Module):
    """What torch.compile returns: the module in _orig_mod, and a forward that knows the module alone."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module
        self.forward = lambda *arguments: module(*arguments)


Compiled.__name__ = "OptimizedModule"


def wrapped_forward(net):
    """Replaces the forward of a network as libraries do that move layers between devices."""
    net.old = net.forward
    net.forward = functools.update_wrapper(functools.partial(lambda module, x: module.old(x), net), net.old)
    return net


def compiled_forward(net):
    old = net.forward
    net.forward = lambda x: old(x)
    net.forward._torchdynamo_orig_callable = old
    return net


def referred(net):
    """Refers to layers by a list that is no part of the tree of modules, and by a hook of the network's own."""
    net.also = [net.drop]
    net.compute = lambda net, x: net.last(net.also[0](x))
    return net


MODELS = {
    "layer": lambda: nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(16, 3)),
    "encoder": lambda: sequence(
        nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True), 2)),
        lambda layer, x: layer(x).mean(1),
    ),
    "recurrent": lambda: sequence(nn.LSTM(4, 8, 2, dropout=0.5, batch_first=True), lambda layer, x: layer(x)[0][:, -1]),
    "attention": lambda: sequence(
        nn.ModuleList([nn.Linear(4, 8), nn.MultiheadAttention(8, 2, 0.5, batch_first=True)]),
        lambda layer, x: layer[1](layer[0](x), layer[0](x), layer[0](x))[0].mean(1),
    ),
    "function": lambda: Net(lambda net, x: net.last(F.dropout(x, 0.5, net.training)), last=nn.Linear(16, 3)),
    "frozen": lambda: Frozen(nn.Dropout(0.9), nn.Dropout(0.1), nn.Linear(16, 3)),
    "spectral": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)), nn.Dropout(0.3), nn.Linear(16, 3)),
    "weight norm": lambda: sequence(
        nn.utils.weight_norm(nn.LSTM(4, 8, 2, dropout=0.5, batch_first=True), "weight_hh_l0"), lambda layer, x: layer(x)[0][:, -1]
    ),
    "compiled": lambda: (lambda net: nn.Sequential(Net(lambda _, x: x, same=net), Compiled(Compiled(net))))(MODELS["function"]()),
    "compiled forward": lambda: compiled_forward(MODELS["function"]()),
    "wrapped forward": lambda: wrapped_forward(MODELS["function"]()),
    "referred": lambda: referred(Net(None, drop=nn.Dropout(0.5), last=nn.Linear(16, 3))),
    "parallel": lambda: nn.DataParallel(MODELS["layer"]()),
}


def state(model):
    return [(m.training, [(t.data_ptr(), t.requires_grad, t.clone()) for t in (*m.parameters(), *m.buffers())]) for m in model.modules()]


def unchanged(before, model):
    for (training, tensors), (now, others) in zip(before, state(model)):
        assert training == now
        for (place, grad, value), (place_now, grad_now, value_now) in zip(tensors, others):
            assert place == place_now and grad == grad_now and torch.equal(value, value_now)


@pytest.mark.filterwarnings("error::UserWarning:ckd")
@pytest.mark.parametrize("name", MODELS)
def test_samples_what_the_model_samples(name):
    """Encoders took PyTorch's fast path: a mean MI of 0.000 for 0.104, and inputs were retained that nobody knew."""
    model, batch = MODELS[name]().eval(), torch.randn(30, 16)
    before = state(model)
    spread = ckd.torch.mc_dropout(model, 60)(batch).std(axis=0).mean()
    unchanged(before, model)
    model.train()
    with torch.no_grad():
        want = torch.stack([torch.softmax(model(batch), -1) for _ in range(60)]).std(0).mean().item()
    assert want > 0.01 and spread == pytest.approx(want, rel=0.15)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.BatchNorm1d(16),
        lambda: nn.BatchNorm1d(16, momentum=0),
        lambda: nn.Sequential(nn.Unflatten(1, (4, 4)), nn.InstanceNorm1d(4, track_running_stats=True), nn.Flatten()),
        OwnNorm,
    ],
    ids=["batch", "without momentum", "instance", "own"],
)
def test_normalisation_stays_in_evaluation(norm):
    """A model that learned its statistics from what it served gave other answers by the evening."""
    model, batch, seen = nn.Sequential(norm(), nn.Dropout(0.5), nn.Linear(16, 3)), torch.randn(40, 16) * 2 + 3, []
    before = state(model)
    sampler = ckd.torch.mc_dropout(model, 20, example=batch)
    model[0].register_forward_hook(lambda _, __, out: seen.append(out))
    sampler(batch)
    unchanged(before, model)
    right = model.eval()[0](batch)
    assert len(seen) == 21 and all(torch.equal(out, right) for out in seen)


def test_other_threads_and_later_weights():
    """Another thread's plain answers changed in 448 of 448 calls while a sampler computed."""
    model, batch = MODELS["function"]().eval(), torch.randn(9, 16)
    sampler, right, stop, answers = ckd.torch.mc_dropout(model, 100, example=batch), model(batch), threading.Event(), []

    def serve():
        while not stop.is_set():
            model.grown[len(answers)] = [torch.zeros(1)]  # as a cache does
            answers.append(torch.equal(model(batch), right))

    model.grown = {}
    shared = set()
    hook = model.last.register_forward_hook(lambda layer, *_: shared.add((layer is model.last, layer.weight.data_ptr())))
    sampler(batch)
    assert shared == {(False, model.last.weight.data_ptr())}
    hook.remove()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        sampler(batch)
        while len(answers) < 100:
            sampler(batch)
    finally:
        stop.set()
        thread.join()
    assert all(answers)

    for update in (
        lambda: model.load_state_dict(MODELS["function"]().state_dict()),
        lambda: setattr(model, "last", nn.Linear(16, 3, bias=False)),
        lambda: model.last.weight.data.zero_(),
    ):
        update()
        shift = np.abs(sampler(batch).mean(axis=0) - torch.softmax(model(batch), -1).detach().numpy()).max()
        assert shift < 0.1
    assert shift < 1e-6


def test_differences_are_told():
    """A dropout with its mask in a buffer is like normalisation for the sampler: six times too little was sampled."""
    drops = nn.Sequential(MaskInBuffer(), nn.Dropout(0.02), nn.Linear(16, 3))
    with pytest.warns(UserWarning, match=r"have a spread of 0\.0\d+, in training mode 0\.[1-9]\d+ .* 0 \(MaskInBuffer\)"):
        ckd.torch.mc_dropout(drops, example=torch.randn(8, 16))
    faint = nn.Sequential(nn.Linear(16, 16), nn.Dropout(1e-3), nn.Linear(16, 3, bias=False))
    faint[2].weight.data /= 100
    with pytest.warns(UserWarning, match="nearly the same: .* varies by at most 0.00"):
        ckd.torch.mc_dropout(faint, example=torch.randn(8, 16))
    merging = nn.Sequential(Merging(), nn.Dropout(0.2), nn.Linear(16, 3)).eval()
    before = state(merging)
    with pytest.warns(UserWarning, match=r"also sets merged of 0 \(Merging\)"):
        ckd.torch.mc_dropout(merging)(torch.randn(8, 16))
    unchanged(before, merging)


class Outputs(nn.Module):
    """Returns what a function makes of logits, to be softmaxed or not."""

    def __init__(self, output):
        super().__init__()
        self.output, self.drop, self.last = output, nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x, more=0):
        return self.output(self, self.last(self.drop(x)) * 4 + more)


@pytest.mark.parametrize(
    "output",
    [
        lambda _, z: z,
        lambda _, z: z.bfloat16(),
        lambda _, z: z.half(),
        lambda _, z: z.softmax(-1),
        lambda _, z: z.softmax(-1).bfloat16(),
        lambda _, z: z.softmax(-1).double(),
        lambda _, z: z.log_softmax(-1),
        lambda net, z: (z, z + 9) if net.training else z,
        lambda _, z: {"loss": 0, "logits": z},
        lambda _, z: types.SimpleNamespace(logits=z),
    ],
)
def test_outputs(output):
    """A model that ended in a softmax was softmaxed again: no probability over 0.576, and everything was uncertain."""
    model, batch = Outputs(output), torch.randn(40, 16)
    sampler = ckd.torch.mc_dropout(model, 5, example=batch)
    torch.manual_seed(2)
    got = sampler(batch)
    torch.manual_seed(2)
    with torch.no_grad():
        want = np.stack([model.last(model.drop(batch)).mul(4).softmax(-1).numpy() for _ in range(5)])
    assert got.dtype == np.float32 and np.allclose(got.sum(axis=2), 1, atol=1e-5) and np.allclose(got, want, atol=0.02)


def test_arguments():
    model, batch = Outputs(lambda _, z: z), torch.randn(6, 16)
    tokens = collections.UserDict(x=batch, more=torch.ones(6, 1))  # a tokenizer's are such
    sampler = ckd.torch.mc_dropout(model, 2, output=lambda z: z.softmax(-1))
    assert sampler(tokens).shape == sampler((batch, torch.ones(6, 1))).shape == sampler(batch.double().float()).shape == (2, 6, 3)
    for odd, error in (((batch, batch[:3]), ValueError), ({"x": batch, "more": 1}, TypeError)):
        with pytest.raises(error, match="batch"):
            sampler(odd)


@pytest.mark.parametrize(
    "model, words",
    [
        (lambda: nn.Linear(16, 3), "no part of Linear drops"),
        (lambda: network(0.0), "no part of Sequential drops"),
        (lambda: Net(lambda net, x: net.last(x), last=nn.Linear(16, 3)), "20 passes of Net are nearly the same"),
        (lambda: nn.Sequential(MaskInBuffer(), nn.Linear(16, 3)), r"spread of 0\.0000, in training mode 0\.[1-9]"),
        (lambda: nn.Sequential(nn.LazyLinear(16), nn.Dropout(0.2)), r"weight of 0 \(LazyLinear\) is not initialised"),
        (lambda: torch.jit.script(MODELS["layer"]()).eval(), "is scripted and in evaluation mode"),
        (lambda: "model", "found str, expected a torch.nn.Module"),
        (lambda: Outputs(lambda net, z: 1 / 0 if net.training else z), r"not in training mode \(division by zero\)"),
        (lambda: Outputs(lambda net, z: z[:, :2] if net.training else z), r"returns \[8, 2\] in training mode, but \[8, 3\]"),
        (lambda: Outputs(lambda _, z: z[:, :1]), r"returns \[8, 1\] for 8 inputs.*output=lambda"),
        (lambda: Outputs(lambda _, z: z[:, 0]), r"returns \[8\] for 8 inputs.*output=lambda"),
        (lambda: Outputs(lambda _, z: z[:, :, None]), r"returns \[8, 3, 1\] for 8 inputs"),
        (lambda: Outputs(lambda _, z: {"out": z}), "returns dict with out"),
    ],
)
def test_refused(model, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ckd.torch.mc_dropout(model())(torch.randn(8, 16))


def test_reached_around_the_replica():
    """A forward that was replaced by a closure answered without dropout in every pass."""
    model = MODELS["function"]().eval()
    forward = model.forward
    model.forward = lambda x: forward(x)
    with pytest.raises(ValueError, match="reaches its Linear through a closure"):
        ckd.torch.mc_dropout(model)(torch.randn(8, 16))


def test_settings_and_outputs_that_are_refused():
    sigmoids, logits, batch = Outputs(lambda _, z: z.sigmoid()), Outputs(lambda _, z: z), torch.randn(8, 16)
    with pytest.warns(UserWarning, match="wrong for sigmoids"):
        ckd.torch.mc_dropout(sigmoids, example=batch)
    for call, words in (
        (lambda: ckd.torch.mc_dropout(logits, output="probabilities")(batch), "found a row with the sum"),
        (lambda: ckd.torch.mc_dropout(logits, output=torch.exp)(batch), "found a row with the sum"),
        (lambda: ckd.torch.mc_dropout(logits, 0), "passes is 0"),
        (lambda: ckd.torch.mc_dropout(logits, output="logit"), "output is 'logit'"),
        (lambda: ckd.torch.ensemble([logits]), "found 1 members"),
        (lambda: ckd.torch.ensemble([logits, logits])(batch), "the members are equal"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_certain_inputs_do_not_tell():
    """A first batch of which every pass is one-hot is no fault; the next one is examined."""
    model = MODELS["layer"]()
    model[2].bias.data[0] = 1000.0
    sampler = ckd.torch.mc_dropout(model, 3)
    assert (sampler(torch.randn(4, 16))[:, :, 0] == 1).all()
    model[1].p = 0.0
    model[2].bias.data[0] = 0.0
    with pytest.raises(ValueError, match="are nearly the same"):
        sampler(torch.randn(4, 16))


def test_training_in_the_same_autocast():
    """Weights that autocast had cast while passes were computed got no gradients."""
    model, batch = MODELS["layer"](), torch.randn(8, 16)
    with torch.autocast("cpu", torch.bfloat16):
        ckd.torch.mc_dropout(model, 2)(batch)
        loss = model(batch).float().sum()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_ensemble():
    members = [network() for _ in range(4)] + [torch.jit.script(network()).eval()]
    members[1].eval()
    modes = [[m.training for m in member.modules()] for member in members]
    batch = torch.randn(7, 5)
    passes = ckd.torch.ensemble(members)(batch)
    assert [[m.training for m in member.modules()] for member in members] == modes
    for values, member in zip(passes, members):
        assert np.allclose(values, torch.softmax(member.eval()(batch), -1).detach().numpy(), atol=1e-6)


def test_decide(client):
    """The model computes its passes once, and the daemon's answer is that for these passes."""
    model, batch = network(), torch.randn(9, 5)
    sampler = ckd.torch.mc_dropout(model, 30, example=batch)
    sizes = []
    model[3].register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    with client.session("fetal-health", accept_settled=True) as session:
        torch.manual_seed(1)
        results = sampler.decide(session, [str(i) for i in range(9)], batch)
        assert sizes == [9] * 30
        batches = [([f"{n}-{i}" for i in range(9)], batch) for n in range(2)]
        assert [len(part) for part in sampler.decide_batches(session, batches)] == [9, 9]
        torch.manual_seed(1)
        for result, want in zip(results, session.decide([str(i) for i in range(9)], sampler(batch))):
            assert result.c.tobytes() == want.c.tobytes() and result.action == want.action


def test_examples_of_other_libraries(client, monkeypatch):
    """The examples of the page for Hugging Face and Keras decide, with stand-ins for these libraries."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "python/README.md").read_text(), re.DOTALL)
    names = {"ckd": ckd, "np": np}
    for block in blocks:
        if "transformers" in block or "keras" in block:
            exec(block, names)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(128, 8), nn.Linear(8, 3)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

        def forward(self, input_ids=None, attention_mask=None):
            hidden = self.layer(self.embedding(input_ids), src_key_padding_mask=attention_mask == 0)
            return collections.OrderedDict(logits=self.head(hidden[:, 0]))

    def tokenizer(texts, padding, truncation, return_tensors):
        tokens = [torch.tensor(list(text.encode())) for text in texts]
        padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        return collections.UserDict(input_ids=padded, attention_mask=(padded > 0).long())

    transformers = types.ModuleType("transformers")
    for name, made in (("AutoTokenizer", tokenizer), ("AutoModelForSequenceClassification", Encoder().eval())):
        setattr(transformers, name, types.SimpleNamespace(from_pretrained=lambda _, made=made: made))
    keras = types.ModuleType("keras")
    keras.layers = types.SimpleNamespace(BatchNormalization=type("BatchNormalization", (), {"trainable": True}))
    keras.ops = types.SimpleNamespace(convert_to_numpy=np.asarray)
    layers = [keras.layers.BatchNormalization(), types.SimpleNamespace(trainable=True)]

    class Model:
        def __call__(self, rows, training):
            assert training and [layer.trainable for layer in layers] == [False, True]
            return np.random.default_rng().dirichlet([1, 1, 1], len(rows)).astype(np.float32)

        def _flatten_layers(self):
            return layers

    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "keras", keras)
    texts = ["one", "another", "the third of them"]
    with client.session("fetal-health", accept_settled=True) as session:
        results = names["text_classifier"]("a model")(session, texts, texts)
        results += session.decide(texts, names["keras_forward"](Model(), np.zeros((3, 2))), 30)
    assert len(results) == 6 and not any(result.error for result in results)


def test_answered_inputs_are_left_out():
    """The rows that a session asks for are those that the model computes."""
    model = network()
    sampler, sizes = ckd.torch.mc_dropout(model, 30, example=torch.randn(9, 5)), []
    model[3].register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))

    class Session:
        def decide(self, ids, forward, passes, contexts):
            return [forward(np.arange(9)).shape, forward(np.array([1, 4])).shape]

    assert sampler.decide(Session(), "abcdefghi", torch.randn(9, 5)) == [(9, 3), (2, 3)]
    assert sizes == [9, 2]
