"""Loops whose rounds read tensors around them at the place that the round says, as exporters write
them.  A model is the text of its graph; its inputs are drawn anew for each call."""

from dataclasses import dataclass, field

import numpy as np
from onnx import helper, parser

OPSET = 17


def _dims(shape):
    return f"[{','.join(map(str, shape))}]" if shape else ""


def _all_nodes(graph):
    for n in graph.node:
        yield n
        for a in n.attribute:
            yield from _all_nodes(a.g)


@dataclass(frozen=True)
class LoopCase:
    """``calls``: extents of each call, by name; ``inputs``: name -> (dtype, extents as numbers or
    names); ``values``: functions of the extents, for inputs that are numbers."""

    name: str
    inputs: dict
    text: str
    calls: tuple = ({"t": 5}, {"t": 1})
    values: dict = field(default_factory=dict)

    @property
    def model(self):
        kinds = {"f": "float", "i": "int64", "b": "bool"}
        given = ", ".join(f"{kinds[np.dtype(d).kind]}{_dims(s)} {n}"
                          for n, (d, s) in self.inputs.items())
        head = f'<ir_version: 8, opset_import: ["" : {OPSET}]>\n'
        outs, _, rest = self.text.strip().partition("\n")
        made = parser.parse_model(f"{head}agraph ({given}) => ({outs})\n{rest}")
        read = {i for n in _all_nodes(made.graph) for i in n.input} | {
            o.name for o in made.graph.output}
        for n in [n for n in made.graph.node if n.op_type == "Constant"]:
            if n.output[0] not in read:
                made.graph.node.remove(n)
        for output in made.graph.output:  # nobody declares their shapes
            output.CopyFrom(helper.make_tensor_value_info(
                output.name, output.type.tensor_type.elem_type, None))
        return made

    @property
    def extents(self):
        """The names of extents."""
        return sorted({d for _, shape in self.inputs.values() for d in shape
                       if isinstance(d, str)})

    @property
    def dims(self):
        """Ranges of the extents, those of all calls in them."""
        return {n: (min(c[n] for c in self.calls), max(c[n] for c in self.calls))
                for n in self.extents}

    def feeds(self, call, seed=0):
        rng = np.random.default_rng(seed)
        out = {}
        for n, (dtype, shape) in self.inputs.items():
            dims = [call.get(d, d) for d in shape]
            out[n] = np.asarray(self.values[n](call) if n in self.values
                                else rng.standard_normal(dims), dtype).reshape(dims)
        return out


EMPTY = '""'  # an input that is left out
F, I64, BOOL = np.float32, np.int64, np.bool_
X, H = (F, ("t", 2, 4)), (F, (2, 4))
COUNT = """
  k0 = Constant <value: tensor = int64[1] {0}> ()
  k1 = Constant <value: tensor = int64[1] {1}> ()
  one = Constant <value: tensor = int64 {1}> ()
  zero = Constant <value: tensor = int64 {0}> ()
  huge = Constant <value: tensor = int64 {9223372036854775807}> ()
  yes = Constant <value: tensor = bool {1}> ()
  n1 = Shape <start: int = 0, end: int = 1> (x)
  n = Squeeze (n1, k0)
"""


def over(rows, body, outs="float[2,4] h, float all", count="n", go="", states="h0", made="h, all",
         before="", after="", cond="go = Identity (more)", given="float[2,4] s",
         gives="float[2,4] s2, float[2,4] row"):
    """The text of a loop over the rows of x."""
    return f"""{outs}
{{ {COUNT} {before}
  {made} = Loop ({count or EMPTY}, {go or EMPTY}, {states}) <body: graph = one_round (
      int64 i, bool more, {given}) => (bool go, {gives}) {{
    {body}
    {cond}
  }}>
  {after}
}}"""


STEP = "a = Add (s, xi)\n s2 = Tanh (a)\n row = Mul (s2, xi)"

CASES = [
    LoopCase("rows", {"x": X, "h0": H}, over("t", f"xi = Gather (x, i)\n{STEP}"),
             calls=({"t": 5}, {"t": 1}, {"t": 0})),
    LoopCase("batch_first", {"x": (F, (2, "t", 4)), "h0": H}, over(
        "t", f"xi = Gather <axis = 1> (x, i)\n{STEP}", count="m",
        before="m1 = Shape <start: int = 1, end: int = 2> (x)\n m = Squeeze (m1, k0)")),
    LoopCase("from_the_end", {"x": X, "h0": H}, over(
        "t", f"ni = Neg (i)\n at = Sub (ni, one)\n xi = Gather (x, at)\n{STEP}")),
    LoopCase("backward", {"x": X, "h0": H}, over(
        "t", f"m = Sub (n, one)\n at = Sub (m, i)\n xi = Gather (x, at)\n{STEP}")),
    LoopCase("before_first_wraps", {"x": X, "h0": H}, over(
        "t", f"at = Sub (i, one)\n xi = Gather (x, at)\n{STEP}")),
    LoopCase("next_one", {"x": X, "h0": H}, over(
        "t", f"at = Add (i, one)\n xi = Gather (x, at)\n{STEP}", count="m",
        before="m = Sub (n, one)"), calls=({"t": 5}, {"t": 2}, {"t": 1})),
    LoopCase("every_second", {"x": X, "h0": H}, over(
        "t", f"at = Mul (i, two)\n xi = Gather (x, at)\n{STEP}", count="m",
        before="two = Constant <value: tensor = int64 {2}> ()\n m = Div (n, two)"),
        calls=({"t": 5}, {"t": 2}, {"t": 4})),
    LoopCase("both_ends", {"x": X, "h0": H}, over(
        "t", f"m = Sub (n, one)\n at = Sub (m, i)\n xj = Gather (x, at)\n xk = Gather (x, i)\n"
        f"xi = Add (xj, xk)\n{STEP}")),
    LoopCase("half_of_the_round", {"x": X, "h0": H}, over(
        "t", f"at = Div (i, two)\n xi = Gather (x, at)\n{STEP}",
        before="two = Constant <value: tensor = int64 {2}> ()")),
    LoopCase("while_less", {"x": X, "h0": H}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n j = Add (i, one)", count="huge", go="c0",
        before="c0 = Less (zero, n)", cond="go = Less (j, n)"),
        calls=({"t": 5}, {"t": 1}, {"t": 0})),
    LoopCase("while_own_counter", {"x": X, "h0": H}, over(
        "t", f"xi = Gather (x, c)\n{STEP}\n c2 = Add (c, one)\n cn = GreaterOrEqual (c2, n)",
        count="", go="yes", states="zero, h0", made="last, h, all", given="int64 c, float[2,4] s",
        gives="int64 c2, float[2,4] s2, float[2,4] row", cond="go = Not (cn)",
        outs="float[2,4] h, float all, int64 last")),
    LoopCase("while_down", {"x": X, "h0": H}, over(
        "t", f"xi = Gather (x, c)\n{STEP}\n c2 = Sub (c, one)", count="huge", go="c0",
        before="m = Sub (n, one)\n c0 = GreaterOrEqual (m, zero)", states="m, h0",
        made="last, h, all", given="int64 c, float[2,4] s",
        gives="int64 c2, float[2,4] s2, float[2,4] row", cond="go = GreaterOrEqual (c2, zero)",
        outs="float[2,4] h, float all, int64 last"), calls=({"t": 5}, {"t": 1}, {"t": 0})),
    LoopCase("counter_in_floats", {"x": X, "h0": H}, over(
        "t", "ci = Cast <to = 7> (c)\n xi = Gather (x, ci)\n" + STEP + """
        c2 = Add (c, f1)\n ti = Cast <to = 1> (i)\n tj = Less (ti, nf)\n d = Less (c2, nf)""",
        count="huge", go="c0", before="""nf = Cast <to = 1> (n)
        f0 = Constant <value: tensor = float {0}> ()\n f1 = Constant <value: tensor = float {1}> ()
        c0 = Less (f0, nf)""", states="f0, h0", made="last, h, all",
        given="float c, float[2,4] s", gives="float c2, float[2,4] s2, float[2,4] row",
        cond="go = And (tj, d)", outs="float[2,4] h, float all, float last")),
    LoopCase("until_equal", {"x": X, "h0": H}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n j = Add (i, one)\n e = Equal (j, n)", count="huge",
        go="yes", cond="go = Not (e)")),
    LoopCase("number_that_is_an_input", {"x": (F, (9, 2, 4)), "h0": H, "m": (I64, ())}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n", count="m", outs="float[2,4] h", made="h",
        gives="float[2,4] s2", ), calls=({"r": 5}, {"r": 0}, {"r": 9}, {"r": -3}),
        values={"m": lambda call: call["r"]}),
    LoopCase("number_that_is_an_input_of_rows", {"x": X, "h0": H, "m": (I64, ())}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n", count="m", outs="float[2,4] h", made="h",
        gives="float[2,4] s2"), calls=({"t": 5, "r": 5}, {"t": 5, "r": 2}, {"t": 1, "r": 0}),
        values={"m": lambda call: call["r"]}),
    LoopCase("rows_until_data_end_it", {"x": X, "h0": H}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n t = ReduceSum <keepdims = 0> (s2)", made="h",
        before="lim = Constant <value: tensor = float {1}> ()", cond="go = Less (t, lim)",
        outs="float[2,4] h", gives="float[2,4] s2"), calls=({"t": 9}, {"t": 4}, {"t": 1})),
    LoopCase("map", {"x": X}, over(
        "t", "xi = Gather (x, c)\n row = Relu (xi)\n c2 = Add (c, one)\n d = Less (c2, n)",
        count="huge", go="yes", states="zero", made="last, all", given="int64 c",
        gives="int64 c2, float[2,4] row", outs="float all", cond="go = Identity (d)")),
    LoopCase("scattered_rows", {"x": X}, over(
        "t", """xi = Gather (x, i)\n y = Relu (xi)\n yu = Unsqueeze (y, k0)\n at = Unsqueeze (i, k0)
        at2 = Unsqueeze (at, k0)\n o2 = ScatterND (o, at2, yu)""", before="""sh = Shape (x)
        o0 = ConstantOfShape (sh)""", states="o0", made="all", given="float[t,2,4] o",
        gives="float o2", outs="float all")),
    LoopCase("slices_of_one", {"x": X, "h0": H}, over(
        "t", """at = Unsqueeze (i, k0)\n e = Add (at, k1)\n xs = Slice (x, at, e, k0)
        xi = Squeeze (xs, k0)\n""" + STEP)),
    LoopCase("windows", {"x": X}, over(
        "t", """at = Unsqueeze (i, k0)\n e = Add (at, three)\n xs = Slice (x, at, e, k0)
        row = ReduceMean <axes = [0], keepdims = 0> (xs)\n s2 = Add (s, row)""", count="m",
        before="""three = Constant <value: tensor = int64[1] {3}> ()
        two = Constant <value: tensor = int64 {2}> ()\n m = Sub (n, two)
        f = Constant <value: tensor = float[1,1] {0}> ()
        sh = Constant <value: tensor = int64[2] {2, 4}> ()\n h1 = Expand (f, sh)""", states="h1"),
        calls=({"t": 5}, {"t": 3}, {"t": 4})),
    LoopCase("other_tensor", {"x": X, "y": (F, ("u", 2, 4)), "h0": H}, over(
        "t", f"xj = Gather (x, i)\n yi = Gather (y, i)\n xi = Mul (xj, yi)\n{STEP}"),
        calls=({"t": 5, "u": 5}, {"t": 1, "u": 3}, {"t": 4, "u": 6})),
    LoopCase("two_dimensions", {"x": (F, ("t", "u", 4))}, over(
        "t", """s2 = Loop (m, "", s) <body: graph = in_round (int64 j, bool more2, float[4] r)
        => (bool go2, float[4] r2) { xr = Gather (x, i)\n xi = Gather (xr, j)\n a = Add (r, xi)
        r2 = Tanh (a)\n go2 = Identity (more2) }>\n row = Identity (s2)""",
        before="m1 = Shape <start: int = 1, end: int = 2> (x)\n m = Squeeze (m1, k0)\n"
        "f = Constant <value: tensor = float[4] {0.1, 0.2, 0.3, 0.4}> ()", states="f",
        given="float[4] s", gives="float[4] s2, float[4] row", outs="float[4] h, float all"),
        calls=({"t": 5, "u": 3}, {"t": 1, "u": 1}, {"t": 2, "u": 6})),
    LoopCase("in_a_branch", {"x": X, "h0": H, "c": (BOOL, ())}, f"""float[2,4] y
{{ {COUNT}
  y = If (c) <then_branch: graph = a () => (float[2,4] p) {{
    p = Loop (n, "", h0) <body: graph = one_round (int64 i, bool more, float[2,4] s) => (bool go,
      float[2,4] s2) {{ xi = Gather (x, i)\n a = Add (s, xi)\n s2 = Tanh (a)
      go = Identity (more) }}>
    }}, else_branch: graph = b () => (float[2,4] q) {{ q = Neg (h0) }}>
}}""", calls=({"t": 5, "c": 1}, {"t": 2, "c": 0}), values={"c": lambda call: call["c"]}),
    LoopCase("branch_inside", {"x": X, "h0": H}, over(
        "t", """xi = Gather (x, i)\n t = ReduceSum <keepdims = 0> (xi)\n b = Less (t, z)
        s2 = If (b) <then_branch: graph = a () => (float[2,4] p) { xa = Gather (x, i)
        pa = MatMul (s, w)\n p = Add (pa, xa) }, else_branch: graph = e () => (float[2,4] q) {
        qa = MatMul (xi, w)\n q = Sub (s, qa) }>\n row = Identity (s2)""",
        before="z = Constant <value: tensor = float {0}> ()\n w = Constant <value: tensor = "
        "float[4,4] {0.1,0.2,0.3,0.1,0.5,-0.1,0.2,0.3,-0.3,0.2,0.1,0.4,0.2,-0.5,0.3,0.2}> ()")),
    LoopCase("viterbi", {"x": (F, ("t", 5))}, f"""float[5] v, int64 path
{{ {COUNT}
  m = Sub (n, one)
  tr = Constant <value: tensor = float[5,5] {{{",".join(map(str, (
      np.arange(25) * 7 % 11 / 10 - 0.5).round(2)))}}}> ()
  v0 = Gather (x, zero)
  v, bp = Loop (m, "", v0) <body: graph = one_round (int64 i, bool more, float[5] s) => (bool go,
    float[5] s2, int64[5] p) {{ j = Add (i, one)\n e = Gather (x, j)\n su = Unsqueeze (s, k1)
    a = Add (su, tr)\n b = ReduceMax <axes = [0], keepdims = 0> (a)
    p = ArgMax <axis = 0, keepdims = 0> (a)\n s2 = Add (b, e)\n go = Identity (more) }}>
  best = ArgMax <axis = 0, keepdims = 0> (v)
  first, back = Loop (m, "", best) <body: graph = back_round (int64 i, bool more, int64 s) =>
    (bool go, int64 s2, int64 seen) {{ m1 = Sub (m, one)\n j = Sub (m1, i)\n r = Gather (bp, j)
    s2 = Gather (r, s)\n seen = Identity (s)\n go = Identity (more) }}>
  fu = Unsqueeze (first, k0)
  path = Concat <axis = 0> (back, fu)
}}""", calls=({"t": 6}, {"t": 2}, {"t": 1})),
    LoopCase("list_of_rows", {"x": (F, (2, "t", 4)), "h0": H}, f"""float all, float[2,4] h
{{ {COUNT} m1 = Shape <start: int = 1, end: int = 2> (x)\n m = Squeeze (m1, k0)
  none = SequenceEmpty <dtype = 1> ()
  h, rows = Loop (m, yes, h0, none) <body: graph = one_round (int64 i, bool more, float[2,4] s,
    seq(float[?,?]) given) => (bool go, float[2,4] s2, seq(float[?,?]) longer) {{
    xi = Gather <axis = 1> (x, i)\n a = Add (s, xi)\n s2 = Tanh (a)
    longer = SequenceInsert (given, s2)\n go = Identity (yes) }}>
  all = ConcatFromSequence <axis = 1, new_axis = 1> (rows)
}}"""),
    LoopCase("lists_that_are_read", {"x": X, "h0": H}, f"""float all, int64 count
{{ {COUNT}
  parts = SplitToSequence <axis = 0, keepdims = 0> (x, one)\n count = SequenceLength (parts)
  first = SequenceConstruct (h0)
  rows = Loop (count, yes, first) <body: graph = one_round (int64 i, bool more,
    seq(float[?,?]) given) => (bool go, seq(float[?,?]) longer) {{
    m = Sub (count, one)\n at = Sub (m, i)\n xi = SequenceAt (parts, at)\n r = Relu (xi)
    longer = SequenceInsert (given, r)\n go = Identity (more) }}>
  last = SequenceInsert (rows, h0)
  all = ConcatFromSequence <axis = -1> (last)
}}"""),
    LoopCase("first_round_gives_the_shape", {"x": X, "h0": (F, (4,))}, over(
        "t", f"xi = Gather (x, i)\n{STEP}").replace("float[2,4] h, float all", "float h, float all")
        .replace("float[2,4] s)", "float s)").replace("float[2,4] s2", "float s2"),
        calls=({"t": 5}, {"t": 1}, {"t": 2})),
    LoopCase("prefixes", {"x": X, "h0": H}, over(
        "t", """e = Unsqueeze (i, k0)\n e1 = Add (e, k1)\n xs = Slice (x, k0, e1, k0)
        xi = ReduceSum <keepdims = 0> (xs, k0)\n""" + STEP)),
    LoopCase("counter_of_32_bits", {"x": X}, over(
        "t", "row = Gather (x, c)\n c2 = Add (c, one32)\n d = Less (c2, n32)", count="huge",
        go="c0", states="zero32", made="last, all", given="int32 c",
        gives="int32 c2, float[2,4] row", outs="float all, int32 last", cond="go = Identity (d)",
        before="""n32 = Cast <to = 6> (n)
        zero32 = Constant <value: tensor = int32 {0}> ()\n c0 = Less (zero32, n32)
        one32 = Constant <value: tensor = int32 {1}> ()""")),
    LoopCase("counter_by_two", {"x": X}, over(
        "t", "row = Gather (x, c)\n c2 = Add (c, two)", count="huge", go="yes", states="zero",
        made="last, all", given="int64 c", gives="int64 c2, float[2,4] row",
        outs="float all, int64 last", cond="go = Less (c2, n)",
        before="two = Constant <value: tensor = int64 {2}> ()"),
        calls=({"t": 5}, {"t": 1}, {"t": 6})),
    LoopCase("longer_each_round", {"x": X, "h0": (F, ("u", 2, 4))}, over(
        "t", """xi = Gather (x, i)\n xu = Unsqueeze (xi, k0)\n m = ReduceMax <axes = [0]> (s)
        y = Add (xu, m)\n s2 = Concat <axis = 0> (s, y)""", outs="float h", made="h",
        given="float[?,2,4] s", gives="float[?,2,4] s2"),
        calls=({"t": 5, "u": 1}, {"t": 1, "u": 3}, {"t": 0, "u": 2})),
    LoopCase("fewer_of_a_number_and_the_rows", {"x": X, "h0": H, "m": (I64, ())}, over(
        "t", f"xi = Gather (x, i)\n{STEP}\n", count="f", before="f = Min (m, n)", made="h",
        outs="float[2,4] h", gives="float[2,4] s2"), values={"m": lambda call: call["r"]},
        calls=({"t": 5, "r": 7}, {"t": 5, "r": 2}, {"t": 1, "r": 0})),
]


GREEDY = """int64 y, float z
{ COUNT
  c = Constant <value: tensor = float[6,6] {TABLE}> ()
  y, z = Loop (LEN, yes, x, h0) <body: graph = one_round (int64 i, bool more, int64[1,?] v,
    float[1,?,2] k) => (bool go, int64[1,?] v2, float[1,?,2] k2) {
    e = Gather (c, v)\n m = ReduceMean <axes = [1], keepdims = 0> (e)
    a = ArgMax <axis = -1, keepdims = 1> (m)\n v2 = Concat <axis = 1> (v, a)
    s = ReduceSum <keepdims = 0> (k)\n r = Reshape (s, three)\n r2 = Expand (r, shape)
    k2 = Concat <axis = 1> (k, r2)\n d = Equal (a, eos)\n f = Squeeze (d)\n go = Not (f) }>
}"""


def greedy(rounds, seed=0):
    """Tokens that grow until one is the last, and a cache of sums beside them."""
    table = ",".join(map(str, np.random.default_rng(seed).standard_normal(36).round(3)))
    count = COUNT.replace("n1 = Shape <start: int = 0, end: int = 1> (x)", """
      three = Constant <value: tensor = int64[3] {1, 1, 1}> ()
      shape = Constant <value: tensor = int64[3] {1, 1, 2}> ()
      eos = Constant <value: tensor = int64[1,1] {5}> ()""" + (
          f"most = Constant <value: tensor = int64 {{{rounds}}}> ()" if rounds else ""))
    count = count.replace("n = Squeeze (n1, k0)", "")
    text = GREEDY.replace("COUNT", count).replace("TABLE", table).replace(
        "LEN", "most" if rounds else EMPTY)
    return LoopCase("greedy", {"x": (I64, (1, "t")), "h0": (F, (1, "t", 2))}, text).model
