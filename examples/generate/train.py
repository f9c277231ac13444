"""A small decoder that learns a text by heart, character by character, in numpy.

RMSNorm, rotary places, heads that share keys, SwiGLU: what today's language models are made of.
Every function returns its result and a function from the gradient of that to the gradient of its
input; gradients of weights are added up in a dict on the way back.
"""

import codecs
import contextlib
import io

import numpy as np

WIDTH, LAYERS, HEADS, SHARED, INNER = 64, 2, 4, 2, 128
SIZE, EPSILON = WIDTH // HEADS, 1e-5
STEPS = SIZE // 2
FREQUENCIES = (1000.0 ** (-np.arange(STEPS) / STEPS)).astype(np.float32)
WINDOW, BATCH, RATE = 256, 4, 4e-3
NOISE = 0.1  # of the characters read are wrong, so that a slip of its own confuses it less


def zen():
    """The Zen of Python, as ``import this`` prints it."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def initial(vocabulary, seed=0):
    """{name: f32 array} of weights."""
    rng = np.random.default_rng(seed)
    p = {"table": rng.standard_normal((vocabulary, WIDTH)) * 0.3, "norm": np.ones(WIDTH)}

    def weight(name, n, m):
        p[name] = rng.standard_normal((n, m)) / np.sqrt(n)
    for k in range(LAYERS):
        p[f"{k}.norm1"], p[f"{k}.norm2"] = np.ones(WIDTH), np.ones(WIDTH)
        for name, m in (("q", HEADS * SIZE), ("k", SHARED * SIZE), ("v", SHARED * SIZE)):
            weight(f"{k}.{name}", WIDTH, m)
        weight(f"{k}.out", WIDTH, WIDTH)
        weight(f"{k}.gate", WIDTH, INNER)
        weight(f"{k}.up", WIDTH, INNER)
        weight(f"{k}.down", INNER, WIDTH)
    weight("logits", WIDTH, vocabulary)
    return {n: a.astype(np.float32) for n, a in p.items()}


# ---------------------------------------------------------------- functions and their gradients

def linear(p, g, name, x):
    def back(dy):
        g[name] += x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])
        return dy @ p[name].T
    return x @ p[name], back


def norm(p, g, name, x):
    r = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON)

    def back(dy):
        g[name] += (dy * x * r).sum((0, 1))
        d = dy * p[name]
        return r * (d - x * r * r * np.mean(d * x, -1, keepdims=True))
    return x * r * p[name], back


def turned(x, way=1):
    """x [batch, heads, places, size] with the halves of every head turned by its place."""
    angle = np.arange(x.shape[2], dtype=np.float32)[:, None] * FREQUENCIES
    cos, sin = np.cos(angle), way * np.sin(angle)
    a, b = x[..., :STEPS], x[..., STEPS:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def by_heads(x, count):
    return x.reshape(*x.shape[:2], count, SIZE).transpose(0, 2, 1, 3)


def side_by_side(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attention(q, k, v):
    """Of [batch, heads, places, size]; heads of k and v are shared by groups."""
    group, scale = q.shape[1] // k.shape[1], SIZE ** -0.5
    q, k = turned(q), turned(k)
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    score = q @ k.swapaxes(2, 3) * scale
    score = np.where(np.tri(q.shape[2], dtype=bool), score, np.float32(-1e9))
    a = np.exp(score - score.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)

    def back(dy):
        da = dy @ v.swapaxes(2, 3)
        ds = a * (da - (da * a).sum(-1, keepdims=True)) * scale
        grads = turned(ds @ k, -1), turned(ds.swapaxes(2, 3) @ q, -1), a.swapaxes(2, 3) @ dy
        dq, dk, dv = grads
        return dq, *(d.reshape(d.shape[0], -1, group, *d.shape[2:]).sum(2) for d in (dk, dv))
    return a @ v, back


def swiglu(gate, up):
    s = 1 / (1 + np.exp(-gate))
    return gate * s * up, lambda dy: (dy * up * s * (1 + gate * (1 - s)), dy * gate * s)


def block(p, g, k, x):
    h, norm1 = norm(p, g, f"{k}.norm1", x)
    (q, to_q), (key, to_k), (v, to_v) = (linear(p, g, f"{k}.{n}", h) for n in "qkv")
    mixed, attend = attention(by_heads(q, HEADS), by_heads(key, SHARED), by_heads(v, SHARED))
    y, to_out = linear(p, g, f"{k}.out", side_by_side(mixed))
    x = x + y
    h, norm2 = norm(p, g, f"{k}.norm2", x)
    (gate, to_gate), (up, to_up) = (linear(p, g, f"{k}.{n}", h) for n in ("gate", "up"))
    inner, swish = swiglu(gate, up)
    y, to_down = linear(p, g, f"{k}.down", inner)

    def back(dx):
        dgate, dup = swish(to_down(dx))
        dx = dx + norm2(to_gate(dgate) + to_up(dup))
        grads = attend(by_heads(to_out(dx), HEADS))
        dq, dk, dv = map(side_by_side, grads)
        return dx + norm1(to_q(dq) + to_k(dk) + to_v(dv))
    return x + y, back


def loss_and_gradients(p, ids, targets):
    """(mean cross entropy, {name: gradient}) of ids, targets i64[batch, places]."""
    g = {n: np.zeros_like(a) for n, a in p.items()}
    x, backs = p["table"][ids], []
    for k in range(LAYERS):
        x, back = block(p, g, k, x)
        backs.append(back)
    h, last = norm(p, g, "norm", x)
    y, to_logits = linear(p, g, "logits", h)
    y = np.exp(y - y.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    picked = np.take_along_axis(y, targets[..., None], -1)
    loss = -np.log(picked + 1e-9).mean()
    np.put_along_axis(y, targets[..., None], picked - 1, -1)
    dx = last(to_logits(y / targets.size))
    for back in reversed(backs):
        dx = back(dx)
    np.add.at(g["table"], ids, dx)
    return loss, g


def train(text, steps, seed=0, report=lambda line: None):
    """(weights, characters in the order of their numbers) after so many steps of Adam; the text's
    end is followed by its beginning."""
    chars = "".join(sorted(set(text)))
    data = np.array([chars.index(c) for c in text + text])
    lines = np.array([0, *(i + 1 for i, c in enumerate(text) if c == "\n")])
    p, rng = initial(len(chars), seed), np.random.default_rng(seed)
    mean, square = ({n: np.zeros_like(a) for n, a in p.items()} for _ in range(2))
    for t in range(1, steps + 1):
        starts = rng.choice(lines, BATCH)  # as prompts will
        rows = data[starts[:, None] + np.arange(WINDOW + 1)]
        noise = rng.random((BATCH, WINDOW)) < NOISE
        seen = np.where(noise, rng.integers(0, len(chars), noise.shape), rows[:, :-1])
        loss, g = loss_and_gradients(p, seen, rows[:, 1:])
        rate = RATE * min(1, t / 30) * (1 - 0.9 * t / steps)
        for n in p:
            mean[n] += 0.1 * (g[n] - mean[n])
            square[n] += 0.02 * (g[n] ** 2 - square[n])
            p[n] -= np.float32(rate) * (mean[n] / (1 - 0.9 ** t)) / (
                np.sqrt(square[n] / (1 - 0.98 ** t)) + 1e-8)
        if t % 50 == 0 or t == steps:
            report(f"step {t}: loss {loss:.3f}")
    return p, chars
