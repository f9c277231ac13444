"""Arguments and right values of the runtime's functions of one argument, and how near they come."""

import math

import numpy as np

UNARY = ("exp", "log", "erf", "tanh", "sin", "cos", "sqrt", "abs", "floor", "ceil", "round")
INF, NAN = np.float32(np.inf), np.float32(np.nan)
LENGTH = 1 << 16
# name -> (relative bound, absolute bound); exp may give 0 for what would be denormal
BOUNDS = {"exp": (2e-7, 1.18e-38), "log": (2e-7, 0), "erf": (0, 6e-7), "tanh": (0, 4e-7),
          "sin": (0, 1e-6), "cos": (0, 1e-6), "sqrt": (6e-8, 1e-45), "abs": (0, 0),
          "floor": (0, 0), "ceil": (0, 0), "round": (0, 0)}


def every_kind(seed=0):
    """f32 values of all exponents and signs, denormals, infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1 << 32, LENGTH, dtype=np.uint32).view(np.float32).copy()
    x[:12] = [0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38,
              -3.4028235e38, 1.0, -1.0]
    x[12:LENGTH // 2] = rng.normal(0, 20, LENGTH // 2 - 12)
    return x


def exact(name):
    with np.errstate(all="ignore"):
        x = every_kind().astype(np.float64)
        if name == "erf":
            return np.array([math.erf(v) for v in x])
        return {"exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
                "sqrt": np.sqrt, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
                "round": np.rint}[name](x)
