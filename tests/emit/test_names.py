"""Names from a model may be anything; what they become in C is legal, distinct and harmless."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.emit.text.c_names import c_comment, c_string, identifier, parameter_names, prefix

HOSTILE = ["", "x", "X", "x ", "a/b", "a.b", "a_b", "int", "class", "int64_t", "NULL", "ctx", "9",
           "quote\"", "back\\slash", "*/ int main", "/* open", "??/", "tri??=graph", "new\nline",
           "tab\t", "nul\0byte", "naïve", "张量", "😀", "%s%n", "\\u0041", "end\\", "'", "a" * 300,
           "\ud800"]


def test_parameters_are_legal_and_distinct():
    names = parameter_names(HOSTILE + HOSTILE, taken=["x"])
    assert len({n.lower() for n in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", n) and len(n) < 64 for n in names)
    assert not {"x", "int", "class", "int64_t", "null", "ctx", "NULL"} & set(names)


def test_identifiers_keep_different_texts_apart():
    words = [identifier(t) for t in HOSTILE]
    assert len(set(words)) == len(HOSTILE)
    assert identifier("seq_len") == "seq_len"


@pytest.mark.parametrize("text, want", [("bert", "bert"), ("9lives", "m_9lives"), ("", "m"),
                                        ("aotc", "m_aotc"), ("__x", "x"), ("a b", "a_b"),
                                        ("é", "m"), ("class", "m_class"), ("test", "m_test"),
                                        ("NULL", "m_NULL"), ("math", "m_math")])
def test_prefix(text, want):
    assert prefix(text) == want


@given(st.text())
def test_comments_cannot_end(text):
    inside = c_comment(text)
    whole = f"/* {inside} */"
    assert whole.index("*/") == len(whole) - 2 and "/*" not in whole[1:]
    assert whole.isascii() and "\n" not in whole and "??" not in whole


def test_strings_survive_the_compiler(tmp_path):
    texts = HOSTILE + ["a" * 5000, "\"?\\'" * 1200, "é1", "\x017"]
    rows = "\n".join(f"    {c_string(t)}," for t in texts)
    notes = "\n".join(f"/* {c_comment(t)} */" for t in texts)
    source = tmp_path / "t.c"
    source.write_text(f"#include <stdio.h>\n{notes}\nstatic const char *const t[] = {{\n{rows}\n"
                      "};\nint main(void)\n{\n"
                      "    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {\n"
                      "        fputs(t[i], stdout);\n        fputs(\"\\n=====\\n\", stdout);\n"
                      "    }\n    return 0;\n}\n")
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wtrigraphs", "-pedantic", "-Werror",
                    str(source), "-o", str(tmp_path / "t")], check=True)
    out = subprocess.run([str(tmp_path / "t")], capture_output=True, check=True).stdout
    # a C string ends at its first zero byte
    want = [t.encode("utf-8", "replace").split(b"\0")[0] for t in texts]
    assert out.split(b"\n=====\n")[:-1] == want
