"""``--math`` and ``--optimize``: what they change, in the Schedule, the C and the results."""

import re

import numpy as np
import onnx
import pytest
from small_models import two_convolutions

import aotc
from aotc.cli import main
from aotc.errors import AotcError, ScheduleError
from aotc.ir.schedule import Schedule
from aotc.runtime.compile_bundle import build

RNG = np.random.default_rng(3)


def compiled(tmp_path, name, **options):
    bundle = aotc.compile(two_convolutions(), tmp_path / name, name="two", target="x86-64-v3",
                          **options)
    schedule = Schedule.from_json((bundle.path / "schedule.json").read_text())
    return bundle, schedule


def test_exact_calls_libm_and_keeps_convolutions_direct(tmp_path):
    fast, chosen = compiled(tmp_path, "fast")
    exact, plain = compiled(tmp_path, "exact", math="exact")
    assert any(rule == "winograd" for rule, _, _ in chosen.rewrites)
    assert not any(rule == "winograd" for rule, _, _ in plain.rewrites)
    assert (chosen.math, plain.math) == ("fast", "exact")
    assert chosen.hash != plain.hash
    polynomials, libm = ("".join(f.read_text() for f in b.path.glob("*_kernels_*.c"))
                         for b in (fast, exact))
    assert "#define AOTC_EXACT_MATH" in libm and "AOTC_EXACT_MATH" not in polynomials
    x = {"x": RNG.normal(0, 1, (1, 32, 24, 24)).astype(np.float32)}
    a, b = (bundle.load().run(x)["y"] for bundle in (fast, exact))
    assert not np.array_equal(a, b)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * float(np.ptp(b)))


def test_a_form_that_is_asked_for_stays(tmp_path):
    schedule = compiled(tmp_path, "b", math="exact", winograd=2)[1]
    forms = [tile for kind, _, tile in schedule.rewrites if kind == "winograd"]
    assert {v for tile in forms for v in tile.values()} == {2}


def test_size_makes_everything_smaller(tmp_path):
    (big, _), (small, schedule) = (compiled(tmp_path, o, optimize=o) for o in ("speed", "size"))
    assert schedule.optimize == "size" and schedule.rewrites == ()
    assert small.manifest["weights_bytes"] < big.manifest["weights_bytes"]
    a, b = (build(bundle.path).stat().st_size for bundle in (big, small))
    assert b < a
    flags = [row["cflags"] for row in small.manifest["build"]["kernels"]]
    assert all("-Os" in f for f in flags)
    assert re.search(r"KERNEL_CFLAGS \?= .*-Os", (small.path / "Makefile").read_text())
    assert "-Os" in (small.path / "CMakeLists.txt").read_text()


def test_the_schedule_carries_both(tmp_path):
    bundle, schedule = compiled(tmp_path, "a", math="exact", optimize="size")
    again, same = compiled(tmp_path, "b", schedule=bundle.path / "schedule.json")
    assert same == schedule
    assert bundle.manifest["files"] == again.manifest["files"]
    back = compiled(tmp_path, "c", schedule=bundle.path / "schedule.json", math="fast")[1]
    assert (back.math, back.optimize) == ("fast", "size")


def test_variants_follow_a_schedule_that_is_given(tmp_path):
    """Only the widest variant takes the Schedule itself; the others take its two choices."""
    first = aotc.compile(two_convolutions(), tmp_path / "a", name="two", target="x86-64-v4",
                         math="exact")
    bundle = aotc.compile(two_convolutions(), tmp_path / "b", name="two", target="x86-64",
                          schedule=first.path / "schedule.json")
    for part in bundle.path.glob("schedule_*.json"):
        s = Schedule.from_json(part.read_text())
        assert s.math == "exact" and not any(rule == "winograd" for rule, _, _ in s.rewrites)


def test_every_variant_of_a_bundle_follows(tmp_path):
    bundle = aotc.compile(two_convolutions(), tmp_path / "b", name="two", target="x86-64",
                          math="exact", optimize="size")
    parts = sorted(bundle.path.glob("schedule_*.json"))
    assert len(parts) == 3
    for part in parts:
        s = Schedule.from_json(part.read_text())
        assert (s.math, s.optimize, s.rewrites) == ("exact", "size", ())


@pytest.mark.parametrize("option", [{"math": "precise"}, {"optimize": "3"}, {"connect": "L9"},
                                    {"winograd": 5}])
def test_unknown_choices_name_the_legal_ones(option, tmp_path):
    with pytest.raises(AotcError, match="choose one of"):
        compiled(tmp_path, "b", **option)
    assert not (tmp_path / "b").exists()


def test_an_edited_schedule_is_checked(tmp_path):
    text = compiled(tmp_path, "b", math="exact")[1].to_json()
    with pytest.raises(ScheduleError, match=r"schedule.math: 'exakt'; choose one of fast, exact"):
        Schedule.from_json(text.replace('"exact"', '"exakt"'))


def test_the_command_line_takes_them(tmp_path, capsys):
    path = tmp_path / "two.onnx"
    onnx.save(two_convolutions(channels=8, size=9), path)
    assert main(["verify", str(path), "--math", "exact", "--optimize", "size"]) == 0
    assert main(["show", str(path), "schedule", "--json", "--math", "exact"]) == 0
    assert '"math": "exact"' in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(path), "--math", "precise"])
    assert stop.value.code == 2
