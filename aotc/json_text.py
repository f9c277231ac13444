"""JSON that comes from outside."""

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.  ValueError for what is none, and for one that is nested deeper
    than any of aotc's."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
