"""C text of index expressions computes what the expressions mean."""

import random
import subprocess

import pytest

from aotc.emit.text.cexpr import c_index, c_int
from aotc.errors import AotcError
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Load,
    Sym,
    Unary,
    Var,
    Where,
    check_index,
    compare,
    maximum,
    minimum,
)
from aotc.oracle.eval_expr import index_value

S, T = Sym("s", 0, 50), Sym("t t", 1, 9)
VALUES = [{"s": s, "t t": t} for s in (0, 1, 7, 50) for t in (1, 3, 9)]


def _random(rng, depth):
    if depth == 0:
        return rng.choice([S, T, Const(rng.choice([0, 1, 2, -3, 7, 1 << 20, (1 << 33) + 1]))])
    a, b = _random(rng, depth - 1), _random(rng, rng.randrange(depth))
    op = rng.choice(["add", "sub", "mul", "floordiv", "mod", "min", "max", "where", "neg", "bool",
                     "sqrt"])
    if op in ("floordiv", "mod"):
        return Binary(op, a, rng.choice([T, Const(rng.choice([1, 2, 5, -4]))]))
    if op == "where":
        cond = Binary(rng.choice(["and", "or"]), compare("lt", a, b),
                      Unary("not", compare("eq", a, T)))
        return Where(cond, a, b)
    if op in ("neg", "sqrt"):
        return Unary(op, a)
    if op == "bool":
        return Cast("i64", compare(rng.choice(["le", "gt", "ge", "ne"]), a, b))
    return Binary(op, a, b)


def _fits(e):
    try:
        return all(abs(index_value(e, v)) < 1 << 62 for v in VALUES)
    except ZeroDivisionError:
        return False


def test_random_expressions_compute_the_same_in_c(tmp_path, repository):
    rng = random.Random(5)
    found = [e for e in (_random(rng, rng.randrange(1, 4)) for _ in range(400)) if _fits(e)]
    assert len(found) > 200
    rows = "\n".join(f'    printf("%lld\\n", (long long)({c_index(e)}));' for e in found)
    lines = ['#include "aotc_index.h"', "#include <stdio.h>",
             "struct frame { int64_t sym_s, sym_t_t_52f2bf; };".replace(
                 "sym_t_t_52f2bf", c_index(T).removeprefix("f->")),
             "static void show(const struct frame *f)", "{", rows, "}", "int main(void)", "{"]
    lines += [f"    show(&(struct frame){{{v['s']}, {v['t t']}}});" for v in VALUES]
    (tmp_path / "t.c").write_text("\n".join([*lines, "    return 0;", "}", ""]))
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wno-div-by-zero",
                    "-Wno-bool-compare", "-Wno-int-in-bool-context", "-Wno-type-limits",
                    "-Wno-overflow",
                    "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{repository}/runtime_c",
                    str(tmp_path / "t.c"), "-o", str(tmp_path / "t")], check=True)
    out = subprocess.run([str(tmp_path / "t")], capture_output=True, check=True, text=True).stdout
    assert [int(x) for x in out.split()] == [index_value(e, v) for v in VALUES for e in found]


def test_plain_division_only_where_both_are_proved_not_negative():
    i = Axis("i", S)
    assert c_index(i // 4) == "(i / 4)" and c_index(i % 4) == "(i % 4)"
    assert c_index((i - 1) // 4) == "aotc_floordiv(i - 1, 4)"
    assert c_index(Var("tile") % 4) == "aotc_floormod(tile, 4)"


def test_literals():
    assert [c_int(v) for v in (5, -5, 1 << 31, -(1 << 31), -(1 << 63))] == [
        "5", "(-5)", "INT64_C(2147483648)", "(-INT64_C(2147483648))", "INT64_MIN"]
    assert c_index(minimum(S, Const(3))) == "aotc_min(f->sym_s, 3)"
    assert c_index(maximum(S, Const(3))) == "aotc_max(f->sym_s, 3)"


@pytest.mark.parametrize("e", [Load("t", (Const(0),), "i64"), Unary("sqrt", Const(1.0, "f32")),
                               check_index(S, Const(4)), Cast("f32", S)])
def test_other_nodes_are_refused(e):
    with pytest.raises(AotcError, match="no index expression"):
        c_index(e)
