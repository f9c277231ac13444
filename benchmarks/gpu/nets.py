"""Whole networks with random weights at any batch, written as exporters write them, and the same as
PyTorch modules: of interest is their speed alone."""

from dataclasses import dataclass

import numpy as np

from benchmarks.decoder_models import Sizes, gpt2, llama
from benchmarks.exported.build import Writer
from benchmarks.gpu.halves import halved
from benchmarks.low_precision_cases import in_groups

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks and channels of ResNet-50


@dataclass(frozen=True)
class Net:
    """One network.  ``kind``: a key of NETS; ``type``: f32, tf32, f16 or, of a decoder, int4w;
    small: a few layers of a few channels, for a simulator."""

    kind: str
    batch: int
    type: str = "f16"
    small: bool = False

    @property
    def name(self):
        """Unique among the nets."""
        return f"{self.kind} batch {self.batch} {self.type}"

    @property
    def stem(self):
        """The name as that of files."""
        return "n_" + self.name.replace(" ", "_")

    def model(self):
        """The ModelProto."""
        made = NETS[self.kind](self.batch, self.small)
        return {"f16": halved, "int4w": in_groups}.get(self.type, lambda m: m)(made)

    @property
    def options(self):
        """What else to compile it with."""
        dims = {"batch": self.batch, "seq": 1, "past": 4 if self.small else 512}
        decoder = {"dims": dims} if self.kind in DECODERS else {}
        return decoder | ({"precision": "tf32"} if self.type == "tf32" else {})


def encoder_sizes(kind, small):
    """(tokens, width, layers, heads) of an encoder."""
    if small:
        return 5, 16, 1, 2
    return (128 if kind == "bert_base" else 197), 768, 12, 12


def _encoder(kind):
    def make(batch, small):
        tokens, width, layers, heads = encoder_sizes(kind, small)
        g = Writer(kind, 1)
        x = g.input("x", [batch, tokens, width])
        for _ in range(layers):
            y = g.self_attention(x, width, heads, tokens, batch=batch)
            x = _norm(g, g.op("Add", x, y), width)
            x = _norm(g, g.op("Add", x, g.mlp(x, width, 4 * width)), width)
        return g.model(x)
    return make


def _norm(g, x, n):
    return g.op("LayerNormalization", x, g.weight(n), g.weight(n))


def _resnet50(batch, small):
    side = 32 if small else 224
    g, stages = Writer("resnet50", 1), [(1, 8)] if small else STAGES
    x = g.op("Relu", g.conv(g.input("x", [batch, 3, side, side]), 3, stages[0][1], 7, 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cin = stages[0][1]
    for n, (blocks, c) in enumerate(stages):
        for b in range(blocks):
            stride = 2 if n and not b else 1
            y = g.op("Relu", g.conv(x, cin, c, 1))
            y = g.conv(g.op("Relu", g.conv(y, c, c, 3, stride)), c, 4 * c, 1)
            skip = g.conv(x, cin, 4 * c, 1, stride) if not b else x
            x, cin = g.op("Relu", g.op("Add", y, skip)), 4 * c
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.model(g.linear(x, cin, 10 if small else 1000))


def _gpt2(batch, small):
    """A token with a past."""
    return gpt2(Sizes(shared=4, layers=1) if small else Sizes(
        50257, 768, 12, 12, 12, 3072, 1024))


def _llama(batch, small):
    """One layer as wide as one of 7 B weights, and few words: a token takes layers times this."""
    return llama(Sizes(64, 64, 1, 2, 2, 128) if small else Sizes(
        1024, 4096, 1, 32, 32, 11008, 1024))


DECODERS = ("gpt2_token", "llama_layer")
NETS = {"bert_base": _encoder("bert_base"), "vit_base": _encoder("vit_base"),
        "resnet50": _resnet50, "gpt2_token": _gpt2, "llama_layer": _llama}
ALL = [*(Net(kind, batch, type_) for type_ in ("f16", "tf32") for kind in (
    "bert_base", "resnet50", "vit_base") for batch in (1, 32)),
    Net("gpt2_token", 1), Net("llama_layer", 1, "int4w")]


def torch_module(net):
    """The network as a PyTorch module on the GPU.  LookupError if there is none here."""
    import torch
    dtype = torch.float16 if net.type == "f16" else torch.float32
    if net.kind == "resnet50":
        try:
            import torchvision
        except ImportError:
            raise LookupError("torchvision is not installed") from None
        return torchvision.models.resnet50(weights=None).eval().cuda().to(dtype)
    if net.kind in DECODERS:
        raise LookupError("no PyTorch module of that name")
    return _torch_encoder(*encoder_sizes(net.kind, net.small)[1:]).eval().cuda().to(dtype)


def _torch_encoder(width, layers, heads):
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2)
                       for t in self.qkv(x).chunk(3, -1))
            y = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = self.norms[0](x + self.out(y))
            return self.norms[1](x + self.down(f.gelu(self.up(x))))
    torch.manual_seed(1)
    return nn.Sequential(*(Layer() for _ in range(layers)))


def net_feeds(net, inputs):
    """Random arrays for inputs (name, dtype, shape) of a net: {name: array}; ids of a decoder are
    of its words."""
    rng, extents, out = np.random.default_rng(), net.options.get("dims", {}), {}
    extents = extents | {"past + seq": extents.get("past", 0) + extents.get("seq", 0)}
    for name, dtype, dims in inputs:
        shape = [extents.get(d, d) for d in dims]
        if "mask" in name:
            out[name] = np.ones(shape, dtype)
        elif dtype == "int64":
            out[name] = rng.integers(0, 40, shape)
        else:
            out[name] = rng.standard_normal(shape, np.float32).astype(dtype)
    return out


__all__ = ["ALL", "Net", "net_feeds", "torch_module"]
