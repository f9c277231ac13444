"""Whole networks with random weights at any batch, written as exporters write them, and the zoo's:
of interest is their speed alone."""

from dataclasses import dataclass

import numpy as np

from benchmarks import models
from benchmarks.decoder_models import Sizes, gpt2, llama
from benchmarks.exported.build import Writer
from benchmarks.exported.images import res_block, spatial_transformer
from benchmarks.gpu.halves import halved
from benchmarks.low_precision_cases import in_groups

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks and channels of ResNet-50


@dataclass(frozen=True)
class Net:
    """One network.  ``kind``: a key of NETS, or one of WELDER's; ``type``: f32, tf32, f16 or, of a
    decoder, int4w; small: a few layers of a few channels, for a simulator."""

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
        made = (NETS[self.kind](self.batch, self.small) if self.kind in NETS
                else models.at_batch(self.kind, self.batch))
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


def diffusion_sizes(small):
    """(channels, pixels a side, width of words, heads) of a block of a diffusion net, as the first
    of Stable Diffusion's."""
    return (32, 4, 16, 2) if small else (320, 64, 768, 8)


def _diffusion_block(batch, small):
    c, side, words, heads = diffusion_sizes(small)
    g = Writer("diffusion_block", 1)
    x, text = g.input("x", [batch, c, side, side]), g.input("text", [batch, 77, words])
    return g.model(spatial_transformer(g, res_block(g, x, c, c, side), c, side, text, heads, words))


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
        "resnet50": _resnet50, "gpt2_token": _gpt2, "llama_layer": _llama,
        "diffusion_block": _diffusion_block}
# of the zoo: what else Welder (OSDI'23, section 6.1) measures, and many tokens of GPT-2
WELDER = ("nerf_mlp", "gpt2", "mobilenet_v2", "conformer", "mobilevit_s", "swin_tiny",
          "nafnet", "restormer", "bsrn")
ALL = [*(Net(kind, batch, type_) for type_ in ("f16", "tf32") for kind in (
    "bert_base", "resnet50", "vit_base") for batch in (1, 32)),
    Net("gpt2_token", 1), Net("llama_layer", 1, "int4w"), Net("diffusion_block", 2)]


def zoo_nets():
    """Nets of the zoo, where there is one: in f16, at batch 1 and, where a model takes it, 32."""
    known = [kind for kind in WELDER if kind in models.names()]
    return [Net(kind, batch) for batch in (1, 32) for kind in known
            if batch == 1 or models.takes_batches(kind)]


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


__all__ = ["ALL", "WELDER", "Net", "diffusion_sizes", "encoder_sizes", "net_feeds", "zoo_nets"]
