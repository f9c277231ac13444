"""docs/operators.md says what the code does."""

import onnx
import pytest
import support_table


def test_the_page_is_up_to_date():
    page = support_table.PAGE.read_text()
    if f"onnx {onnx.__version__}:" not in page:
        pytest.skip("the page was made with another release of onnx")
    assert page == support_table.text(), "run python tests/conformance/support_table.py"
