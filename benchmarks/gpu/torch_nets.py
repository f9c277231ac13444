"""The networks of ``nets`` as PyTorch modules on the GPU: with modules of its own, attention by its
fused operator, else those that the zoo was exported from."""

from benchmarks.gpu.nets import WELDER, diffusion_sizes, encoder_sizes
from benchmarks.models import zoo_module


def torch_module(net, device="cuda"):
    """The network as a PyTorch module on ``device``.  LookupError, with why, if there is none
    here."""
    import torch
    dtype = torch.float16 if net.type == "f16" else torch.float32
    torch.manual_seed(1)
    if net.kind == "resnet50":
        made = _resnet50()
    elif net.kind == "diffusion_block":
        made = _diffusion_block(*diffusion_sizes(net.small))
    elif net.kind in ("bert_base", "vit_base"):
        made = _encoder(*encoder_sizes(net.kind, net.small)[1:])
    else:
        made = _of_the_zoo(net)
    return made.eval().to(device, dtype)


def _resnet50():
    try:
        import torchvision
    except ImportError:
        raise LookupError("torchvision is not installed") from None
    return torchvision.models.resnet50(weights=None)


def _of_the_zoo(net):
    """What the zoo's model was exported from."""
    if net.kind not in WELDER:
        raise LookupError("no PyTorch module of that name")
    try:
        return zoo_module("export").REG[net.kind]["build"]()[0]
    except ImportError as err:
        raise LookupError(f"{err.name} is not installed") from None


def _attend(q, kv, heads):
    """Attention of q [n, tokens, heads * size] over (k, v) alike."""
    from torch.nn import functional as f
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, *kv))
    return f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _encoder(width, layers, heads):
    from torch import nn
    from torch.nn import functional as f

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            x = self.norms[0](x + self.out(_attend(q, (k, v), heads)))
            return self.norms[1](x + self.down(f.gelu(self.up(x))))
    return nn.Sequential(*(Layer() for _ in range(layers)))


def _diffusion_block(c, side, words, heads):
    """A residual block, then a transformer of pixels with cross attention."""
    from torch import nn
    from torch.nn import functional as f

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.groups = nn.ModuleList(nn.GroupNorm(32, c, 1e-6) for _ in range(3))
            self.convs = nn.ModuleList(nn.Conv2d(c, c, k, padding=k // 2) for k in (3, 3, 1, 1))
            self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3))
            self.own, self.kv = nn.Linear(c, 3 * c), nn.Linear(words, 2 * c, bias=False)
            self.q = nn.Linear(c, c, bias=False)
            self.outs = nn.ModuleList(nn.Linear(c, c) for _ in range(2))
            self.up, self.down = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

        def forward(self, x, text):
            h = self.convs[0](f.silu(self.groups[0](x)))
            x = x + self.convs[1](f.silu(self.groups[1](h)))
            h = self.convs[2](self.groups[2](x)).flatten(2).transpose(1, 2)
            q, k, v = self.own(self.norms[0](h)).chunk(3, -1)
            h = h + self.outs[0](_attend(q, (k, v), heads))
            h = h + self.outs[1](_attend(self.q(self.norms[1](h)), self.kv(text).chunk(2, -1),
                                         heads))
            u, gate = self.up(self.norms[2](h)).chunk(2, -1)
            h = h + self.down(u * f.gelu(gate))
            return x + self.convs[3](h.transpose(1, 2).unflatten(2, (side, side)))
    return Block()


__all__ = ["torch_module"]
