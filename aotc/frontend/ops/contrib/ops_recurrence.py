"""Layers of com.microsoft that carry a state from token to token: causal convolutions with what
came before, and linear attention, whose keys and values are gathered in one matrix per head."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import TensorProto

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.attention import width
from aotc.ir.expr import Axis, Const, Expr, Shape, Unary
from aotc.ir.program import static_shape

MAX_UNROLLED = 8  # tokens: each is as much code again
RULES = {"linear": "", "gated": "decay", "delta": "beta", "gated_delta": "decay beta"}


def rounded(s: Spelling, v: Val, dtype: str, out: int) -> Val:
    """The f32 tensor ``v`` as output ``out``, of that dtype."""
    if dtype != "f16":
        return s("Identity", v, out=out)
    return s("Cast", v, to=TensorProto.FLOAT16, out=out)


# ---------------------------------------------------------------- causal convolutions

@spells("CausalConvWithState", "input weight bias past_state", "activation dilation channels_last",
        only={"ndim": 1, "state_window": 0, "state_update_capacity": 0, "state_channels_last": -1,
              "state_length": 0, "input_channel_offset": 0, "input_channels": 0})
def causal_conv(s: Spelling) -> Result:
    """Every channel by itself over [batch, channels, length], each place with those before it;
    channels of any number of dimensions where they come last."""
    x, w, past = s.val("input"), s.val("weight"), s.opt("past_state")
    last, given = s.attr("channels_last", 0), x.shape
    channels = width(s, w.shape[0], 1, "the weights")
    if last:
        x = _channels_first(s, x, channels)
        past = past and _channels_first(s, past, channels)
    step = s.attr("dilation", 1)
    kept = (width(s, w.shape[2], 1, "the taps") - 1) * step
    if past is None:
        past = s("Expand", s.number(0, x.dtype), s.dims(x.shape[0], channels, kept))
    s.b.require("eq", past.shape[2], kept, "past_state must hold what the taps reach back")
    whole = s("Concat", past, x, axis=2)
    y = activated(s, s("Conv", whole, w, s.opt("bias"), group=channels, dilations=[step]),
                  None if last else 0)
    state = s.cut(whole, 2, x.shape[2], x.shape[2] + kept, out=None if last else 1)
    if not last:
        return y, state
    y, state = (s.transpose(v, 0, 2, 1) for v in (y, state))
    return (s.reshape(y, *given, out=0),
            s.reshape(state, state.shape[0], kept, *given[2:], out=1))


def _channels_first(s: Spelling, v: Val, channels: int) -> Val:
    """[batch, length, ..] as [batch, channels, length]."""
    return s.transpose(s.reshape(v, *v.shape[:2], channels), 0, 2, 1)


def activated(s: Spelling, v: Val, out: int | None) -> Val:
    """``v`` through the node's activation."""
    kind = s.attr("activation", "none")
    if kind not in ("none", "silu", "swish"):
        raise s.b.bad(f"the activation {kind!r} is none of 'silu', 'swish' and 'none'")
    return s("Identity" if kind == "none" else "Swish", v, out=out)


# ---------------------------------------------------------------- linear attention

@dataclass(frozen=True)
class Tokens:
    """Operands of linear attention, f32, tokens first: ``q`` [tokens, batch, heads, size], ``k``,
    ``v`` likewise; ``decay`` [.., heads] or [.., heads, size], the logarithm of what is kept of the
    state [batch, heads, size, columns]; ``beta`` [.., heads or 1], how much of the update counts.
    The heads of the state are those of ``v``; fewer queries or keys are shared by neighbours, and
    states by more queries."""

    q: Val
    k: Val
    v: Val
    decay: Val | None
    beta: Val | None
    scale: float

    @property
    def heads(self) -> int:
        return _count(self.v)

    @property
    def shown(self) -> int:
        """Heads of the result."""
        return max(_count(self.q), self.heads)


def _count(v: Val) -> int:
    static = static_shape(v.shape[2:3])
    assert static is not None, v  # heads are cut by their number
    return static[0]


@spells("LinearAttention", "query key value past_state decay beta",
        "q_num_heads kv_num_heads update_rule scale chunk_size", only={"state_window": 0})
def linear_attention(s: Spelling) -> Result:
    q, k, v, past = s.val("query"), s.val("key"), s.val("value"), s.opt("past_state")
    rule, dtype = s.attr("update_rule", "gated_delta"), q.dtype
    if rule not in RULES:
        raise s.b.bad(f"the update rule {rule!r} is none of {', '.join(RULES)}")
    count, shared = s.given("q_num_heads"), s.given("kv_num_heads")
    size = width(s, q.shape[2], count, "the queries")
    keys = width(s, k.shape[2], size, "the keys")  # how many heads they have
    gate, beta = (s.val(n) if n in RULES[rule] else None for n in ("decay", "beta"))
    if gate is not None and static_shape(gate.shape[2:]) != (shared,):
        gate = _by_token(s, gate, shared)
    else:
        gate = gate and _token_first(s, gate)
    tokens = Tokens(_by_token(s, q, count), _by_token(s, k, keys), _by_token(s, v, shared), gate,
                    beta and _token_first(s, beta), s.attr("scale", 0.0) or size ** -0.5)
    made, state = attended(s, tokens, past and s.cast(past, "f32"))
    flat = s.transpose(made, 1, 0, 2, 3)
    flat = s.reshape(flat, *q.shape[:2], tokens.shown * width(s, v.shape[2], shared, "the values"))
    return (rounded(s, flat, dtype, 0),
            rounded(s, state, dtype if past is None else past.dtype, 1))


def _token_first(s: Spelling, v: Val) -> Val:
    """[batch, tokens, ..] as [tokens, batch, ..] of f32."""
    return s.transpose(s.cast(v, "f32"), 1, 0, *range(2, v.rank))


def _by_token(s: Spelling, v: Val, count: int) -> Val:
    """[batch, tokens, count * size] as [tokens, batch, count, size] of f32."""
    size = width(s, v.shape[2], count, "an operand")
    return s.reshape(_token_first(s, v), v.shape[1], v.shape[0], count, size)


def attended(s: Spelling, tokens: Tokens, past: Val | None) -> tuple[Val, Val]:
    """(what every token reads, [tokens, batch, heads, columns]; the state behind the last one)."""
    for all_, shared in ((tokens.heads, _count(tokens.k)), (tokens.shown, tokens.heads),
                         (tokens.shown, _count(tokens.q))):
        if all_ % shared:
            raise s.b.bad(f"{all_} heads cannot share {shared} heads")
    steps, batch, _, size = tokens.k.shape
    if past is None:
        past = s("Expand", s.number(0, "f32"), s.dims(batch, tokens.heads, size,
                                                     tokens.v.shape[3]))
    known = static_shape((steps,))
    given = [v for v in (tokens.q, tokens.k, tokens.v, tokens.decay, tokens.beta) if v is not None]
    if known is None or not 0 < known[0] <= MAX_UNROLLED:
        def one(turn: Expr, states: Sequence[Val], cut: Sequence[Val]) -> Made:
            made, after = _step(s, tokens, states[0], cut, "")
            return [after], [made], None
        lasts, wholes, _ = loop(s.b, "tokens", steps, [past], [(v, False) for v in given],
                                [False], one)
        return wholes[0], lasts[0]
    rows, state = [], past
    for t in range(known[0]):
        cut = [s("Gather", v, s.number(t, "i64"), axis=0) for v in given]
        row, state = _step(s, tokens, state, cut, f"_{t}")
        rows.append(s.spread(row, 0))
    return s("Concat", *rows, axis=0), state


def _step(s: Spelling, tokens: Tokens, state: Val, cut: Sequence[Val], tag: str
          ) -> tuple[Val, Val]:
    """(what one token reads, the state behind it); ``cut``: its operands."""
    b, rest = s.b, list(cut)
    q, k, v = rest[:3]
    decay = rest[3] if tokens.decay is not None else None
    beta = rest[-1] if tokens.beta is not None else None
    each, size, columns = tokens.heads // _count(tokens.k), state.shape[2], state.shape[3]
    shape: Shape = (state.shape[0], Const(tokens.heads), columns)
    if decay is not None:
        gate, before, deep = decay, state, decay.rank == 3

        def kept(i: Index) -> Expr:
            return b.at(before, i) * Unary("exp", b.at(gate, i[:3] if deep else i[:2]))
        state = b.map(state.shape, kept, [state], f"kept{tag}")
    update = v
    if beta is not None:
        axes, r = b.axes(shape), Axis("k", size)
        there = b.compute(axes, b.at(state, (axes[0], axes[1], r, axes[2]))
                          * b.at(k, (axes[0], axes[1] // each, r)), (r,), "sum", f"read{tag}")
        rate, single = beta, static_shape(beta.shape[1:]) == (1,)

        def correction(i: Index) -> Expr:
            share = b.at(rate, (i[0], Const(0) if single else i[1]))
            return share * (b.at(v, i) - b.at(there, i))
        update = b.map(shape, correction, [there], f"update{tag}")
    held = state

    def entered(i: Index) -> Expr:
        return b.at(held, i) + b.at(k, (i[0], i[1] // each, i[2])) * b.at(
            update, (i[0], i[1], i[3]))
    after = b.map(state.shape, entered, [state], f"state{tag}")
    axes, r = b.axes((shape[0], Const(tokens.shown), columns)), Axis("k", size)
    mine, own = tokens.shown // tokens.heads, tokens.shown // _count(tokens.q)
    raw = b.compute(axes, b.at(q, (axes[0], axes[1] // own, r)) * b.at(
        after, (axes[0], axes[1] // mine, r, axes[2])), (r,), "sum", f"raw{tag}")
    scale = const(tokens.scale, "f32")
    return b.map(raw.shape, lambda i: b.at(raw, i) * scale, [raw], f"read_by{tag}"), after
