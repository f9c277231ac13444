"""Long lines of C are broken where a reader would, and nothing else changes."""

import pytest

from aotc.emit.text.wrapped import WIDTH, wrap_lines

CALL = ("    micro_kernel(1, 5, a_row, 1, b_col, 4, 20, 6 - n0, "
        "b_next + aotc_min(m0 / 4 * 3, 1) * 5, 3, acc);")
FOR = ("            for (int64_t kw = aotc_max(1 - ow * 2, 0); kw < aotc_min(10 - ow * 2, 3); "
       "++kw) { /* taps */")


@pytest.mark.parametrize("line", [
    CALL, FOR, "    " + " + ".join(["term"] * 60) + ";", "x = f(" * 30 + "0" + ")" * 30 + ";",
    "/* " + "word " * 60 + "*/", " * " + "word " * 60])
def test_parts_fit_and_say_the_same(line):
    parts = wrap_lines(line).split("\n")
    assert len(parts) > 1 and max(map(len, parts)) <= WIDTH
    said = " ".join(" ".join(parts).split())
    if line.startswith(("/*", " *")):  # every line of a comment begins with a star
        said = said.replace(" * word", " word")
    assert said.replace("( ", "(") == " ".join(line.split())


def test_what_a_comment_sets_in_stays_so():
    parts = wrap_lines(" *     if (" + "word " * 30).split("\n")
    assert all(p.startswith(" *         word") for p in parts[1:]) and len(parts) > 1


def test_statements_break_in_as_few_brackets_as_can_be():
    assert wrap_lines(CALL).split("\n")[1].strip() in (
        "b_next + aotc_min(m0 / 4 * 3, 1) * 5, 3, acc);", "3, acc);", "acc);")
    assert wrap_lines(FOR).split("\n")[1].strip() == "++kw) { /* taps */"


@pytest.mark.parametrize("text", [
    "short", "#define LONG " + "x " * 80, "    a = b; " + "x" * 90 + " \\",
    '    puts("' + "a, b; c + d " * 12 + '");',
    '    puts("' + "a\\\\\\\", b" + "; c + d " * 12 + '");',
    "#define LONG(x) \\\n    " + "x + " * 60 + "x"])
def test_what_cannot_be_broken_stays(text):
    assert wrap_lines(text) == text


def test_quotes_between_quotes_end_nothing():
    line = "    call('\"', \"a \\\" b\", " + "first + second, " * 8 + "'\\'', last);"
    parts = wrap_lines(line).split("\n")
    assert max(map(len, parts)) <= WIDTH and " ".join(p.strip() for p in parts) == line.strip()
