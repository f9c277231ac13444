"""Generated C as tests read it."""

import re


def unbroken(text):
    """C text with every statement that goes on in a second line in one."""
    return re.sub(r"(?<![;{}/:])\n\s+(?![#}])", " ", text)
