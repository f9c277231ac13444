"""Rows of the random graph generator for strings and sequences."""

import numpy as np
from onnx_graphs import FLOATS, INTEGERS, ML
from onnx_nodes import row

WORDS = ("a", "b", "Abc", "x y", "", "\u00e9mu", "cat\"", "*/")


def texts(g, shape, words=WORDS):
    return np.array(g.rng.choices(words, k=int(np.prod(shape, dtype=int))), object).reshape(shape)


def _texts(g):
    """A tensor of strings of the graph, or a new input."""
    x = g.other(lambda v: not isinstance(v.array, list) and v.array.dtype.kind == "O")
    if x is None or g.rng.random() < 0.3:
        x = g.given(texts(g, g.rng.choice(((1,), (3,), (2, 3), (1, 4)))))
    return x


@row()
def encoded(g):
    words = g.rng.sample(WORDS, g.rng.randint(1, 5))
    keys = [int(n) for n in g.np.permutation(9)[:len(words)]]
    if g.rng.random() < 0.5:
        x = _texts(g)
        match g.rng.randrange(3):
            case 0:
                g.add("LabelEncoder", [x], exact=True, domain=ML, keys_strings=words,
                      values_int64s=keys, default_int64=-3)
            case 1:
                g.add("LabelEncoder", [x], exact=True, domain=ML, keys_strings=words,
                      values_floats=[float(k) for k in keys], default_float=0.5)
            case 2:
                g.add("LabelEncoder", [x], exact=True, domain=ML, keys_strings=words,
                      values_strings=words[::-1], default_string="none")
    else:
        x = g.pick(lambda v: v.exact and v.array.dtype == np.int64) or g.input((3,), np.int64)
        g.add("LabelEncoder", [x], exact=True, domain=ML, keys_int64s=keys,
              values_strings=words, default_string="other")


@row()
def categories(g):
    x = _texts(g)
    if g.rng.random() < 0.5:
        g.add("OneHotEncoder", [x], exact=True, domain=ML, zeros=1,
              cats_strings=g.rng.sample(WORDS, 3))
    else:
        g.add("CategoryMapper", [x], exact=True, domain=ML, cats_strings=list(WORDS[:3]),
              cats_int64s=[3, 1, 2], default_int64=-1)


@row(2)
def placed(g):
    x = _texts(g)
    rank = x.array.ndim
    match g.rng.randrange(6):
        case 0:
            g.add("Equal", [x, g.const(texts(g, ()))], exact=True)
        case 1:
            if rank:
                g.add("Transpose", [x], exact=True, perm=g.rng.sample(range(rank), rank))
        case 2:
            g.add("Reshape", [x, g.const(np.array([-1]))], exact=True)
        case 3:
            g.add("Concat", [x, g.const(texts(g, x.array.shape))], exact=True, axis=0)
        case 4:
            if rank and x.array.shape[0]:
                at = g.np.integers(0, x.array.shape[0], g.rng.randint(1, 4))
                g.add("Gather", [x, g.const(at)], exact=True, axis=0)
        case 5:
            same = g.input(x.array.shape, np.bool_)
            g.add("Where", [same, x, g.const(texts(g, ()))], exact=True)


@row()
def made(g):
    """Operators that make strings."""
    x = _texts(g)
    match g.rng.randrange(3):
        case 0:
            g.add("StringConcat", [x, g.const(texts(g, ()))], exact=True)
        case 1:
            # the reference evaluator drops empty ones and takes accents off
            if x.array.ndim == 1 and all(t and t.isascii() for t in x.array.tolist()):
                g.add("StringNormalizer", [x], exact=True, is_case_sensitive=1,
                      case_change_action=g.rng.choice(("LOWER", "UPPER")))
        case 2:
            g.add("RegexFullMatch", [x], exact=True, pattern=g.rng.choice(("[a-z]", "A.*", "")))


@row(2)
def sequences(g):
    """A sequence made, changed, and tensors taken out of it again."""
    x = g.pick(lambda v: v.array.ndim and v.array.size and v.array.dtype in FLOATS + INTEGERS)
    if x is None:
        return
    axis = g.rng.randrange(x.array.ndim)
    if g.rng.random() < 0.5:
        made = g.add("SplitToSequence", [x], exact=True, axis=axis, keepdims=g.rng.randint(0, 1))
    else:
        made = g.add("SequenceConstruct", [x, x], exact=True)
    for _ in range(g.rng.randint(0, 2)):
        if not made:
            return
        items = made[0].array
        match g.rng.randrange(2):
            case 0:
                new = g.const(g.data(items[0].shape, items[0].dtype))
                at = g.const(np.array(g.rng.randrange(len(items))))  # the reference's end is off
                made = g.add("SequenceInsert", [made[0], new, at], exact=True)
            case 1:
                if len(items) > 1:
                    at = g.const(np.array(g.rng.randrange(len(items))))
                    made = g.add("SequenceErase", [made[0], at], exact=True)
    if made:
        items = made[0].array
        match g.rng.randrange(3):
            case 0:
                at = g.const(np.array(g.rng.randint(-len(items), len(items) - 1)))
                g.add("SequenceAt", [made[0], at], exact=True)
            case 1:
                g.add("SequenceLength", [made[0]], exact=True)
            case 2:
                g.add("ConcatFromSequence", [made[0]], exact=True, axis=0,
                      new_axis=g.rng.randint(0, 1))
