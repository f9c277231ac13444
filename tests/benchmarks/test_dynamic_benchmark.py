"""What benchmarks of ranges of extents print of the times they took."""

from benchmarks import dynamic, turns


def test_calls_in_turns_and_their_means(capsys, monkeypatch):
    monkeypatch.setattr(turns, "WARM", 0.0)
    asked = []
    systems = {"aotc": [lambda n=n: asked.append(n) for n in "ab"],
               "static": [lambda: asked.append("c"), None]}
    times = turns.in_turns(systems, 2)
    assert "".join(asked) == "aaabbbccc" * 2  # all shapes of a system, then the next one
    assert [[len(row) for row in rows] for rows in times.values()] == [[4, 4], [4, 0]]
    turns.report(["one", "two"], {"aotc": [[1.0], [2.0]], "static": [[0.5], []],
                                  "peer": [[4.0], [2.0]]})
    text = capsys.readouterr().out
    assert "static  0.50" in text and "static     -" in text
    assert "peer: geometric mean 2.000, worst 1.000 of 2" in text


def test_calls_are_chosen_by_place():
    assert [list(dynamic.chosen(t, "abcd")) for t in (None, "2-3", "1,4,9")] == [
        [0, 1, 2, 3], [1, 2], [0, 3]]
