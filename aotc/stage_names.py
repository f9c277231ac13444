"""The compiler's stages in order, by name: what ``pipeline`` runs, ``--stop-after`` and ``show``
take."""

ABOUT = {
    "load": "read the model file",
    "graph": "operators, shapes, constants",
    "program": "tensor expressions",
    "integers": "products of quantised tensors as integer sums",
    "fold": "constants folded, equal computes merged",
    "inline": "moves become index expressions",
    "schedule": "groups, tiles, layouts, micro-kernels",
    "plan": "loops, arena, call order",
    "bundle": "C text and weights",
    "write": "files in place",
}
STAGE_NAMES = tuple(ABOUT)
SHOWN = STAGE_NAMES[1:-1]  # the model itself is protobuf's text, the last stage only moves files
