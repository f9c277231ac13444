"""Writes the models of this folder and ``answers.npz``: small synthesizers of speech with random
weights, as both exporters of PyTorch write them, and what PyTorch makes of texts of some lengths.

    python tests/exec/synthesizers/write.py      (torch, onnxscript and onnx; no test runs it)

Text becomes frames by durations that are data (a length regulator), frames become samples by
transposed convolutions.  Weights are multiples of 1/32, which compress well."""

import gzip
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).parent
WIDTH, TEXTS, LENGTHS = 4, 12, (1, 5, 9, 12)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d, padding=d)
                                   for d in (1, 3))

    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Decoder(nn.Module):
    """HiFi-GAN: frames to 8 samples each."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.pre = nn.Conv1d(width, width, 7, padding=3)
        self.ups = nn.ModuleList([nn.ConvTranspose1d(width, width // 2, 4, 2, padding=1),
                                  nn.ConvTranspose1d(width // 2, width // 4, 8, 4, padding=2)])
        self.res = nn.ModuleList([Residual(width // 2), Residual(width // 4)])
        self.post = nn.Conv1d(width // 4, 1, 7, padding=3, bias=False)

    def forward(self, x):
        x = self.pre(x)
        for up, residual in zip(self.ups, self.res):
            x = residual(up(F.leaky_relu(x, 0.1)))
        return torch.tanh(self.post(F.leaky_relu(x)))


def sequence_mask(length, most=None):
    places = torch.arange(length.max() if most is None else most, dtype=length.dtype)
    return places.unsqueeze(0) < length.unsqueeze(1)


def path_of(durations, mask):
    """Which frame is of which letter: differences of cumulative sums, padded beside the frames."""
    batch, _, frames, letters = mask.shape
    ends = torch.cumsum(durations, -1).view(batch * letters)
    path = sequence_mask(ends, frames).to(mask.dtype).view(batch, letters, frames)
    path = path - F.pad(path, (0, 0, 1, 0, 0, 0))[:, :-1]
    return path.unsqueeze(1).transpose(2, 3) * mask


class Gates(nn.Module):
    """WaveNet's dilated convolutions with gates."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.ins = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=d, padding=d)
                                 for d in (1, 2))
        self.outs = nn.ModuleList([nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)])

    def forward(self, x, mask):
        out = torch.zeros_like(x)
        for first, last in zip(self.ins, self.outs):
            a = first(x)
            more = last(torch.tanh(a[:, :self.width]) * torch.sigmoid(a[:, self.width:]))
            if last is not self.outs[-1]:
                x = (x + more[:, :self.width]) * mask
                more = more[:, self.width:]
            out = out + more
        return out * mask


class Flow(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.half = width // 2
        self.pre, self.gates = nn.Conv1d(width // 2, width, 1), Gates(width)
        self.post = nn.Conv1d(width, width // 2, 1)

    def forward(self, x, mask):
        a, b = torch.split(torch.flip(x, [1]), [self.half, self.half], 1)
        mean = self.post(self.gates(self.pre(a) * mask, mask)) * mask
        return torch.cat([a, (b - mean) * mask], 1)


class Vits(nn.Module):
    """Piper: durations by exp and ceil, a path of frames, flows, a decoder."""

    inputs = ("ids", "lengths", "noise")

    def __init__(self):
        super().__init__()
        self.table, self.conv = nn.Embedding(20, WIDTH), nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.norm, self.project = nn.LayerNorm(WIDTH), nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.durations = nn.Conv1d(WIDTH, 1, 3, padding=1)
        self.flows, self.decoder = nn.ModuleList([Flow(WIDTH), Flow(WIDTH)]), Decoder()

    def forward(self, ids, lengths, noise):
        x = self.table(ids).transpose(1, 2)
        mask = sequence_mask(lengths, ids.size(1)).unsqueeze(1).to(x.dtype)
        x = self.norm(self.conv(x * mask).transpose(1, 2)).transpose(1, 2) * mask
        mean, deviation = torch.split(self.project(x) * mask, WIDTH, 1)
        durations = torch.ceil(torch.exp(self.durations(x) * mask) * mask)
        frames = torch.clamp_min(torch.sum(durations, [1, 2]), 1).long()
        there = sequence_mask(frames).unsqueeze(1).to(x.dtype)
        path = path_of(durations[:, 0], mask.unsqueeze(2) * there.unsqueeze(-1)).squeeze(1)
        mean = torch.matmul(path, mean.transpose(1, 2)).transpose(1, 2)
        deviation = torch.matmul(path, deviation.transpose(1, 2)).transpose(1, 2)
        z = mean + noise * torch.exp(deviation)
        for flow in reversed(self.flows):
            z = flow(z, there)
        return self.decoder(z * there)


class FastSpeech(nn.Module):
    """Letters repeated, positions, attention over frames, a postnet with norms."""

    inputs = ("ids",)

    def __init__(self):
        super().__init__()
        self.table, self.durations = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 1)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 5, padding=2)
        self.narrow = nn.Conv1d(2 * WIDTH, WIDTH, 1)
        self.mel, self.batch = nn.Linear(WIDTH, 6), nn.BatchNorm1d(6)
        self.post = nn.Conv1d(6, 6, 5, padding=2)
        self.register_buffer("places", torch.randn(1, 64, WIDTH))

    def forward(self, ids):
        x = self.table(ids)
        times = torch.clamp(torch.round(torch.exp(self.durations(x).squeeze(-1) + 0.5)), min=1)
        x = torch.repeat_interleave(x[0], times[0].long(), dim=0).unsqueeze(0)
        x = x + self.places[:, :x.size(1)]
        batch, frames, _ = x.shape
        q, k, v = (a.view(batch, frames, 2, WIDTH // 2).transpose(1, 2)
                   for a in self.qkv(x).chunk(3, -1))
        seen = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
        x = self.norm(x + self.out(seen.transpose(1, 2).reshape(batch, frames, WIDTH)))
        x = x + self.narrow(torch.relu(self.wide(x.transpose(1, 2)))).transpose(1, 2)
        mel = self.mel(x)
        return mel + torch.tanh(self.batch(self.post(mel.transpose(1, 2)))).transpose(1, 2)


class Styled(nn.Module):
    """A norm along the frames, scaled by the style."""

    def __init__(self):
        super().__init__()
        self.norm, self.line = nn.InstanceNorm1d(WIDTH, affine=True), nn.Linear(4, 2 * WIDTH)

    def forward(self, x, style):
        scale, shift = self.line(style).unsqueeze(2).chunk(2, 1)
        if torch.compiler.is_exporting():  # which the norm's own check of the extent ends
            x = x - x.mean(-1, keepdim=True)
            return (1 + scale) * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) + shift
        return (1 + scale) * self.norm(x) + shift


class Kokoro(nn.Module):
    """Repeats as a matrix, recurrent layers along the frames, styles, sines of a pitch."""

    inputs = ("ids", "style")

    def __init__(self):
        super().__init__()
        self.table, self.durations = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 1)
        self.read = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.frames = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.first, self.second = Styled(), Styled()
        self.pitch, self.skip = nn.Conv1d(WIDTH, 1, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 1)
        self.up = nn.ConvTranspose1d(WIDTH, WIDTH, 3, 2, padding=1, output_padding=1, groups=WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.source = nn.Conv1d(1, WIDTH, 5, stride=2, padding=2)
        self.decoder = Decoder()

    def forward(self, ids, style):
        exporting = torch.compiler.is_exporting()  # it has no LSTM of a free length
        x = self.table(ids) if exporting else self.read(self.table(ids))[0]
        times = torch.round(torch.sigmoid(self.durations(x)).sum(-1) * 4).clamp(min=1).long()
        of = torch.repeat_interleave(torch.arange(ids.shape[1]), times[0])
        path = (torch.arange(ids.shape[1]).unsqueeze(1) == of.unsqueeze(0)).float()
        frames = x.transpose(1, 2) @ path.unsqueeze(0)
        if not exporting:
            frames = self.frames(frames.transpose(1, 2))[0].transpose(1, 2)
        pitch = F.interpolate(self.pitch(frames), scale_factor=4.0, mode="nearest")
        sines = self.source(torch.sin(torch.cumsum(pitch, -1) / 8))
        skipped = F.interpolate(self.skip(frames), scale_factor=2.0, mode="nearest")
        x = self.conv(self.up(F.leaky_relu(self.first(frames, style), 0.2))) + skipped
        return self.decoder(self.second(x, style) + sines)


class Jets(nn.Module):
    """Frames as Gaussian mixtures of letters, a norm in groups, a decoder."""

    inputs = ("ids",)

    def __init__(self):
        super().__init__()
        self.table, self.durations = nn.Embedding(20, WIDTH), nn.Conv1d(WIDTH, 1, 3, padding=1)
        self.norm, self.decoder = nn.GroupNorm(2, WIDTH), Decoder()

    def forward(self, ids):
        x = self.table(ids)
        times = torch.exp(self.durations(x.transpose(1, 2)).squeeze(1) + 0.5)
        times = torch.clamp(torch.round(times), min=1)
        frames = torch.arange(times.sum().long()).float().unsqueeze(0)
        middles = times.cumsum(-1) - times / 2
        far = (frames.unsqueeze(-1) - middles.unsqueeze(1)) ** 2
        return self.decoder(self.norm((torch.softmax(far / -10, 2) @ x).transpose(1, 2)))


MODELS = {"vits": Vits, "fastspeech": FastSpeech, "kokoro": Kokoro, "jets": Jets}


def feeds_of(net, length):
    feeds = {"ids": torch.randint(0, 20, (1, length)), "lengths": torch.tensor([length]),
             "noise": torch.full((1,), 0.25), "style": torch.randn(1, 4)}
    return {name: feeds[name] for name in net.inputs}


def exported(net, newer):
    """The model as bytes: without what only readers want, compressed."""
    args, names = tuple(feeds_of(net, 5).values()), list(net.inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.onnx"
        if newer:
            free = [{1: torch.export.Dim.DYNAMIC}] + [None] * (len(names) - 1)
            torch.onnx.export(net, args, path, dynamo=True, input_names=names, output_names=["y"],
                              dynamic_shapes=free, external_data=False, verbose=False)
        else:
            axis = 1 if isinstance(net, FastSpeech) else 2
            torch.onnx.export(net, args, path, dynamo=False, input_names=names, output_names=["y"],
                              dynamic_axes={"ids": {1: "t"}, "y": {axis: "f"}}, opset_version=17)
        model = onnx.load(path)
    for message in (model, model.graph, *model.graph.node, *model.graph.value_info,
                    *model.graph.input, *model.graph.output, *model.graph.initializer):
        if hasattr(message, "metadata_props"):
            del message.metadata_props[:]
        message.doc_string = ""
    return gzip.compress(model.SerializeToString(), 9, mtime=0)


class Newer:
    """Inside, modules run as they do for the newer exporter."""

    def __enter__(self):
        self.was, torch.compiler.is_exporting = torch.compiler.is_exporting, lambda: True

    def __exit__(self, *_):
        torch.compiler.is_exporting = self.was


def main():
    warnings.filterwarnings("ignore")
    answers = {}
    for name, make in MODELS.items():
        torch.manual_seed(sum(map(ord, name)))
        net = make().eval()
        for p in net.parameters():
            p.data = torch.round(p.data * 32) / 32
        fed = [feeds_of(net, n) for n in LENGTHS]
        for newer in (False, True):
            title = f"{name}_{'dynamo' if newer else 'legacy'}"
            (HERE / f"{title}.onnx.gz").write_bytes(exported(net, newer))
            for n, feeds in zip(LENGTHS, fed):
                with torch.no_grad():
                    if newer:
                        with Newer():
                            y = net(*feeds.values())
                    else:
                        y = net(*feeds.values())
                answers[f"{title} {n} y"] = y.numpy()
                answers.update({f"{name} {n} {k}": v.numpy() for k, v in feeds.items()})
            print(title, [answers[f"{title} {n} y"].shape for n in LENGTHS])
    np.savez_compressed(HERE / "answers.npz", **answers)


if __name__ == "__main__":
    main()
