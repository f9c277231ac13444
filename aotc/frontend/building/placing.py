"""Operators that look at tensors of stored types as they are (``half.py``, ``stored.py``)."""

# operators that only place elements: they take what is stored as it is, unless their input is
# there as f32 already
PLACES = frozenset("""
    Cast CastLike BitCast Identity Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Expand
    Tile DepthToSpace SpaceToDepth Slice Split Concat Trilu Where Gather GatherElements GatherND
    ReverseSequence ConstantOfShape EyeLike OneHot Dropout Pad Compress If Loop Scan
""".split())
# operators that a rounding of their input may turn over: they see the tensor as it is stored
STEPS = frozenset("""
    Cast CastLike BitCast Equal Less LessOrEqual Greater GreaterOrEqual Floor Ceil Round Sign Mod
    ArgMax ArgMin TopK Unique NonZero NonMaxSuppression QuantizeLinear DynamicQuantizeLinear Not
    And Or Xor IsNaN IsInf OneHot Range If Loop Scan Hardmax
""".split())
