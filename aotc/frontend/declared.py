"""Shapes that a model declares, followed backwards: what an elementwise operator reads has the
shape of its result (an extent that is 1 there instead is refused when the tensor is computed)."""

# operators whose result has the shape that their inputs broadcast to
_ELEMENTWISE = frozenset("""
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast CastLike Ceil Clip Cos Cosh Div Elu Equal Erf Exp Floor Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mod Mul
    Neg Not Or Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum
    Tan Tanh Where Xor
""".split())
_FAR = 64  # operators to look through


def expected_shape(b, tensor, rank=None):
    """The extents that the model declares for ``tensor``, or for a result of elementwise operators
    on it: a tuple of ints, the last ``rank`` of them; None if nothing is declared."""
    graph, users = b.graph, {}
    for n in (*graph.nodes, *b.inner):
        for i in n.inputs:
            users.setdefault(i, []).append(n)
    todo, seen = [tensor], set()
    while todo and len(seen) < _FAR:
        t = todo.pop(0)
        found = graph.declared.get(t)
        if found is not None and (rank is None or len(found) >= rank):
            return found if rank is None else found[len(found) - rank:]
        seen.add(t)
        todo += [n.outputs[0] for n in users.get(t, ()) if n.op in _ELEMENTWISE and not n.domain
                 and n.outputs[0] not in seen]
    return None
