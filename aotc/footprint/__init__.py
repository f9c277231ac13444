"""What a bundle takes of a machine's memories: ``aotc size``, and limits for it.

    CodeSize     its C, by the compiler for its machine (``code_size.py``, ``elf.py``)
    BundleSize   that, the weights, and who lives in the arena (``bundle_size.py``)
    reports      text, JSON (``size_report.py``), a picture (``memory_picture.py``)
"""
