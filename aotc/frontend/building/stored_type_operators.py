"""Operators that look at tensors of stored types as they are (``half.py``, ``stored.py``).

Strings are numbers while compiling: every text of the model has its place in one table, and an
element of a tensor of strings is the place of its text there. Texts that the model lacks are
negative numbers, equal ones the same. Only operators that place or compare elements take them."""

from typing import TYPE_CHECKING

from aotc.frontend.building.values import Val
from aotc.frontend.graph import Node
from aotc.ir.dtypes import TEXT

if TYPE_CHECKING:
    from aotc.frontend.building.builder import Builder

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
_PLACES_TEXTS = frozenset("""
    Identity Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile Slice Split Concat Where
    Gather GatherElements GatherND ReverseSequence Compress ArrayFeatureExtractor Shape Size
""".split())
# operators that make strings or look into them: they take bytes (building.characters)
_MAKES_TEXTS = {("", n) for n in "StringConcat StringSplit StringNormalizer RegexFullMatch".split()
                } | {("com.microsoft", "Tokenizer")}
_COMPARES_TEXTS = frozenset("""
    Equal LabelEncoder CategoryMapper OneHotEncoder TfIdfVectorizer
""".split())


def makes_texts(node: Node) -> bool:
    """True for an operator that makes strings or looks into them."""
    return (node.domain, node.op) in _MAKES_TEXTS


def moves_texts(node: Node) -> bool:
    """True for an operator that gives strings another place, whatever they are."""
    return not node.domain and node.op in _PLACES_TEXTS


def places_texts(node: Node, b: "Builder", kinds: dict[int, str]) -> bool:
    """True for an operator that places elements, of which some are strings; False for one that
    knows of them itself.  UnsupportedError for another."""
    if node.op in _PLACES_TEXTS:
        return True
    if node.op not in _COMPARES_TEXTS:
        raise b.unsupported("a tensor of strings", "strings are placed and compared only: give the "
                            "model their numbers")
    if node.op == "Equal" and len(kinds) != len(node.inputs):
        raise b.bad("inputs must have one dtype")
    return False


def is_text(v: Val) -> bool:
    """True for a tensor of strings."""
    return v.stored == TEXT
