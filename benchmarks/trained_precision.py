"""What low precisions cost two trained networks: a classifier of handwritten digits and the decoder
of ``examples/generate``, both trained here.

    python -m benchmarks.trained_precision [--steps 250]

A line per network and precision: the largest difference from f32 as a share of the output's range,
and what users see: test images classified rightly, or the loss and the share of characters of its
text that the decoder foretells.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import aotc
from aotc.oracle.shares import share_of_range

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LEVELS = ("f32", "bf16", "f16", "int8w", "int4w")
SPAN = 256  # characters that the decoder reads at once


def outputs(path, feeds, **options):
    """{precision: outputs} of a model on the target that has rows for all of them."""
    found = {}
    for precision in LEVELS:
        with tempfile.TemporaryDirectory() as folder:
            made = aotc.compile(path, folder, precision=precision, **options)
            found[precision] = made.load().run(feeds)
    return found


def digits(folder):
    """Lines of the classifier."""
    sys.path.insert(0, str(EXAMPLES / "digits"))
    from train import data, write_model
    sys.path.pop(0)
    del sys.modules["train"]
    write_model(folder / "digits.onnx")
    _, images, _, labels = data()
    found = outputs(folder / "digits.onnx", {"images": images})
    for precision, out in found.items():
        error = share_of_range(out["logits"], found["f32"]["logits"])
        right = np.mean(out["digit"] == labels)
        yield f"digits   {precision:6} error {error:.1e}  {right:.4f} of {len(labels)} images right"


def decoder(folder, steps):
    """Lines of the decoder, of the text that it was trained on."""
    sys.path.insert(0, str(EXAMPLES / "generate"))
    from export import export
    from train import train, zen
    sys.path.pop(0)
    text = zen()
    weights, characters = train(text, steps)
    export(weights, folder / "zen.onnx")
    ids = np.array([[characters.index(c) for c in text[:SPAN + 1]]], np.int64)
    model = aotc.compile(folder / "zen.onnx", folder / "probe", dims={"batch": 1}).load()
    caches = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
              for i in model.inputs if i.name != "ids"}
    found = outputs(folder / "zen.onnx", {"ids": ids[:, :-1], **caches}, dims={"batch": 1})
    for precision, out in found.items():
        scores, after = out["scores"][0].astype(np.float64), ids[0, 1:]
        error = share_of_range(out["scores"], found["f32"]["scores"])
        top = scores.max(axis=1, keepdims=True)
        sums = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
        loss = np.mean(sums - scores[np.arange(len(after)), after])
        hits = np.mean(scores.argmax(axis=1) == after)
        yield (f"decoder  {precision:6} error {error:.1e}  loss {loss:.4f}, {hits:.4f} of "
               f"{len(after)} characters foretold")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=250, help="of the decoder's training")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for lines in (digits(Path(folder)), decoder(Path(folder), args.steps)):
            for line in lines:
                print(line, flush=True)


if __name__ == "__main__":
    main()
