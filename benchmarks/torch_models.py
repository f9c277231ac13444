"""The models of ``benchmarks.cuda`` as PyTorch users have them: torchvision's and transformers' own
modules, with random weights, on the GPU.  Only their speed is of interest."""

import importlib.util


def why_not():
    """Why PyTorch cannot be measured here; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch
    return "" if torch.cuda.is_available() else "torch finds no GPU"


def _needs(package):
    if importlib.util.find_spec(package) is None:
        raise LookupError(f"{package} is not installed")


def _digits():
    from torch import nn
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                        nn.Linear(32, 10))

    class Digits(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, images):
            logits = self.net(images / 16)
            return logits, logits.argmax(1)
    return Digits()


def _torchvision(name):
    _needs("torchvision")
    import torchvision
    return getattr(torchvision.models, name)(weights=None)


def _bert(layers, hidden, heads):
    _needs("transformers")
    from transformers import BertConfig, BertModel
    return BertModel(BertConfig(hidden_size=hidden, num_hidden_layers=layers,
                                num_attention_heads=heads, intermediate_size=4 * hidden))


MODULES = {"digits": _digits, "bert_tiny": lambda: _bert(2, 128, 2),
           "bert_small": lambda: _bert(4, 512, 8),
           **{name: lambda name=name: _torchvision(name)
              for name in ("squeezenet1_1", "mobilenet_v2", "resnet18", "resnet50")}}


def open_torch(name, feeds, compiled):
    """``call()`` that starts one inference of the model on the GPU, on the inputs ``feeds`` (arrays
    in the order of its arguments), with ``torch.compile`` if ``compiled``.  LookupError if there
    is no such module here."""
    import torch
    if name not in MODULES:
        raise LookupError("no PyTorch module of that name")
    torch.backends.cuda.matmul.allow_tf32 = False  # f32 beside f32
    torch.backends.cudnn.allow_tf32 = False
    module = MODULES[name]().eval().cuda()
    if compiled:
        module = torch.compile(module)
    inputs = [torch.from_numpy(a).cuda() for a in feeds]

    def call():
        with torch.no_grad():
            return module(*inputs)
    return call


def wait():
    """Until the GPU has done what PyTorch asked of it."""
    import torch
    torch.cuda.synchronize()
