"""docs/operators.md says what the code does."""

import onnx
import pytest
import support_table

from aotc.frontend.building.registry import OPS
from aotc.frontend.building.spelling import MICROSOFT
from aotc.frontend.nearest import NOT_COMPILED


def test_the_page_is_up_to_date():
    page = support_table.PAGE.read_text()
    if f"onnx {onnx.__version__}:" not in page:
        pytest.skip("the page was made with another release of onnx")
    assert page == support_table.text(), "run python tests/conformance/support_table.py"


def test_every_operator_of_the_other_runtime_has_a_line():
    """Of com.microsoft, as the installed ONNX Runtime has them for CPUs: each compiles, or the page
    says why it does not."""
    runtime = pytest.importorskip("onnxruntime")
    if runtime.__version__.rpartition(".")[0] != support_table.RUNTIME:
        pytest.skip("another release has other operators")
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    known = {k.op_name for k in state.get_all_opkernel_def()
             if k.domain == MICROSOFT and k.provider == "CPUExecutionProvider"}
    assert len(known) > 80
    page = support_table.PAGE.read_text()
    for op in sorted(known):
        if (MICROSOFT, op) in OPS:
            assert f"| {op} | {MICROSOFT} |" in page, op
            continue
        why, instead = NOT_COMPILED[op]
        line = " ".join(page.split())
        assert f"{op}" in line and f"{why}; {instead}." in line, op


def test_no_reason_is_out_of_date():
    for op in NOT_COMPILED:  # one that compiles by now is not listed
        listed = any(op in line.partition(":")[0].replace(",", " ").split()
                     for line in support_table.absent().splitlines())
        assert listed == ((MICROSOFT, op) not in OPS), op
