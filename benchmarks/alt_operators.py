"""The nine operators of ALT's evaluation, ten configurations each.

    python -m benchmarks.alt_operators > benchmarks/alt_operators.json

The paper publishes two ranges only: batch in 1..16 and input channels from {3, 16, 32, 64, 512,
960, 1280}; kernels, strides, sizes and output channels are drawn here from what networks use, with
a fixed seed, so small that a configuration takes milliseconds: 10 to 600 Mflop.  The file in the
repository is what is measured; this script is how it came about.
"""

import json
import random
from math import prod

SEED = 7
COUNT = 10
CHANNELS = (3, 16, 32, 64, 512, 960, 1280)
LEAST, MOST = 10e6, 600e6  # operations of one configuration
ELEMENTS = 1 << 22  # of its largest tensor
RANK = {"C1D": 1, "C3D": 3, "T3D": 3}
KINDS = ("C2D", "GRP", "DEP", "DIL", "C3D", "C1D", "GMM", "T2D", "T3D")


def draw(kind, rng):
    """One configuration of an operator, plain data."""
    if kind == "GMM":
        return {"m": rng.choice((16, 64, 128, 196, 512, 1000)),
                "n": rng.choice((64, 128, 768, 1000, 3072)),
                "k": rng.choice((64, 512, 768, 960, 1280))}
    rank = RANK.get(kind, 2)
    c = {"batch": rng.randint(1, 16), "ic": rng.choice(CHANNELS), "groups": 1, "stride": 1,
         "dilation": 1, "oc": rng.choice(CHANNELS[1:]), "kernel": rng.choice((1, 3, 3, 5, 7)),
         "size": rng.choice({1: (64, 196, 256, 1000), 2: (7, 14, 28, 56, 112),
                             3: (4, 7, 8, 14, 16)}[rank])}
    if kind in ("C2D", "C3D", "C1D", "GRP", "DEP"):
        c["stride"] = rng.choice((1, 1, 2))
    if kind == "GRP":
        c |= {"ic": rng.choice(CHANNELS[2:]), "groups": rng.choice((2, 4, 8, 32))}
        c |= {"oc": c["ic"], "kernel": 3}
    if kind == "DEP":
        c |= {"ic": rng.choice(CHANNELS[1:]), "kernel": rng.choice((3, 5, 7))}
        c |= {"oc": c["ic"], "groups": c["ic"]}
    if kind == "DIL":
        c |= {"dilation": rng.choice((2, 3)), "kernel": 3}
    if kind in ("T2D", "T3D"):
        c |= {"stride": 2, "kernel": rng.choice((2, 3, 4))}
    return c


def operations(kind, c):
    """Two per multiplication of the direct form."""
    if kind == "GMM":
        return 2 * c["m"] * c["n"] * c["k"]
    rank = RANK.get(kind, 2)
    points = (c["size"] if kind in ("T2D", "T3D") else -(-c["size"] // c["stride"])) ** rank
    return 2 * c["batch"] * points * c["oc"] * (c["ic"] // c["groups"]) * c["kernel"] ** rank


def fits(kind, c):
    """True if a configuration is neither tiny nor long, and its tensors are small."""
    if not LEAST <= operations(kind, c) <= MOST:
        return False
    if kind == "GMM":
        return True
    rank, taps = RANK.get(kind, 2), c["kernel"] ** RANK.get(kind, 2)
    grown = c["stride"] ** rank if kind in ("T2D", "T3D") else 1
    points = c["batch"] * c["size"] ** rank
    return (c["dilation"] * (c["kernel"] - 1) < c["size"]
            and max(points * c["ic"], points * grown * c["oc"]) <= ELEMENTS
            and prod((c["ic"] // c["groups"], c["oc"], taps)) <= ELEMENTS)


def configurations(seed=SEED):
    """{operator: its configurations}, all different."""
    rng, out = random.Random(seed), {}
    for kind in KINDS:
        found = []
        while len(found) < COUNT:
            c = draw(kind, rng)
            if fits(kind, c) and c not in found:
                found.append(c)
        out[kind] = found
    return out


if __name__ == "__main__":
    rows = ",\n".join(f' "{k}": [\n  ' + ",\n  ".join(json.dumps(c) for c in v) + "]"
                      for k, v in configurations().items())
    print("{\n" + rows + "\n}")
