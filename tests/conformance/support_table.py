"""docs/operators.md, from the registered operators and the cases that pass:

    python tests/conformance/support_table.py
"""

import sys
from collections import defaultdict
from pathlib import Path
from textwrap import wrap

import onnx
import suite

from aotc.frontend.building.registry import OPS
from aotc.frontend.building.spelling import MICROSOFT
from aotc.frontend.nearest import NOT_COMPILED
from aotc.frontend.read.read_types import dtype_name, stored_name
from aotc.ir.dtypes import STORED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
ORDER = ("f32", "f64", "f16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
         *STORED)
RUNTIME = "1.32"  # the release of ONNX Runtime whose operators are looked at
OLDEST = 7  # older models are converted
# why cases do not pass, by how their names begin; the first that fits
REASONS = {
    "node-expanded/test_affine_grid_3d_align_corners_": "the branches of an `If` on a size that is "
    "data give different ranks",
    "node/test_bernoulli": "the expected draws are those of one generator (numpy's)",
    "node-expanded/test_bernoulli": "the expected draws are those of one generator (numpy's)",
    "node/test_training_dropout": "the expected draws are those of one generator (numpy's)",
    "node/test_dft_inverse": "the expected values hold the rounding errors of one FFT, above the "
    "tolerance; aotc's are nearer to zero, which is right",
    "node/test_if_opt": "data decides whether an optional is there",
    "node/test_image_decoder": "images are not decoded: no C library is brought along for it",
    "node/test_loop": "data decides how long a sequence gets",
    "node/test_sequence_insert_at_front": "data decides where in a sequence a tensor of another "
    "shape goes",
    "node/test_split_to_sequence_": "data decides how many tensors there are, or their shapes",
    "simple/test_sequence_model8": "data decides how long the tensors of a sequence are",
    "simple/test_gradient_of_": "training is not compiled",
}
HEAD = """# Operators

Made by `python tests/conformance/support_table.py` from the registered operators and the cases of
the official ONNX backend suite that pass through the whole product (compile, C compiler, run,
compare with the suite's own tolerances); do not edit.

onnx {version}: **{passed} of {total}** cases pass. The list is `tests/conformance/passing.txt` and
may only grow; `python tests/conformance/suite.py` runs the others.

- *opset*: from which version of its domain on the operator compiles, and the newest version at
  which the standard changed it. Models older than opset 7 are converted first.
- *cases*: passing cases with a node of this operator, of all such cases.
- *dtypes*: element types of the inputs and outputs of those that pass.

Operators that the standard defines by other operators are compiled through that definition where
they are not in this table. What aotc refuses it refuses with the node, its types and what to do.
Limits that the table does not show:

- f16 is stored as such and computed in f32: every operator rounds once, at its end. So are bf16 and
  the types of 8 bits and fewer ([numerics](numerics.md#types-that-are-stored-only)).
- Shapes, axes, sizes and counts that come from data need a declared shape of the result (or of an
  elementwise result of it), in numbers and dimensions of inputs; data that contradicts it is a
  fault (`AOTC_SHAPE_MISMATCH`) that names the node. Where nothing nearer is declared, an input of a
  few integers is what the declared outputs leave it, if that is one value. What constants and
  extents determine is known while compiling, in floats and through any operator, where float
  arithmetic on extents rounds as integers do.
- NonZero, Compress, Unique, NonMaxSuppression and TopK of data need no declared extent: there is
  room for the most elements that there may be, what follows them sees [those that there
  are](dimensions.md#bounds-for-what-data-decides), and of an output [their
  number](bundle.md#counted-outputs) is an output too. So do ConstantOfShape, Expand, Pad, Slice,
  Range, Resize to sizes, CenterCropPad and OneHot of numbers that data says. Inside of loops such
  elements must have a fixed number where they leave a round (Pad to one).
- Assignment under a mask (`x[mask] = value`: NonZero, Transpose, ScatterND) is a choice between old
  and new elements where the value is one element, one row, or made of the rows at the same places
  (GatherND and element-wise operators): how many there are need not be declared. Any other value
  has as many rows as there are places, which is [compared at run time](dimensions.md).
- EmbeddingBag as exporters write it, a Loop whose rounds cut runs of rows, fold them, and gather
  the results or insert them into a sequence, is one fold whose loop runs from where a bag begins to
  where it ends. So do sums, products, maxima and minima of a Where that compares places along the
  reduced axis (a Range) with 64-bit numbers from data, lengths or places in a list, and has zero,
  one or infinity for the rest, if nothing else reads it; products of matrices, and the exponentials
  of a masked Softmax, look at all places.
- Resize takes any extents, free ones too: to the extents of another tensor, by factors, or to what
  data says, by factors only if that is declared. Which element is the nearest is computed in f32,
  with the roundings of ONNX Runtime (onnx.reference rounds in f64), in opset 10 upwards where an
  axis gets smaller; so are all places in free extents. Weights in extents that are numbers, of
  smoothing (`antialias`), of regions and of kept aspect ratios are computed in f64. `align_corners`
  by a factor divides by the extent that is made, a whole number, as ONNX Runtime and PyTorch do; by
  a factor that is data, by the extent times the factor, as onnx.reference and the standard's suite
  do. `tf_crop_and_resize` without a region takes the whole image. Factors that are quotients of
  extents resize to the extents they were made of; where f32 makes one less of the product, a call
  is a fault.
- RoiAlign without a `sampling_ratio` takes as many samples of a bin as it has pixels, rounded up,
  as ONNX Runtime does; samples outside of the image are 0. So is MaxRoiPool as it has it.
- Det of more than 4 x 4 is elimination in f64, a loop over columns: of any number of them.
- Sequences are lists while compiling: their length must be known, of inputs it is
  [said](dimensions.md#sequences-and-optionals). Optionals are there or not, which is known too.
- TopK, Unique, Compress, NonZero and NonMaxSuppression are library kernels for rows of more than 32
  elements, on any number of them. On CUDA Unique compares all pairs, at most 16384 elements.
- If with a condition that is data runs one branch; the branches must give the same shapes. Where
  they do not, or only one compiles, the input that decides can be fixed (`--fix NAME=VALUE`).
- Loop, Scan and recurrent layers run round by round, any number of them; few rounds are unrolled. A
  loop that carries a sequence, or whose shapes change from round to round, is always unrolled, at
  most 256 rounds. What a Loop of unknown length gathers has the number of rows that its shape
  declares.
- Activations of RNN, GRU and LSTM are those of the standard, in any case. Each that takes an alpha
  or a beta takes the next of the list; where there is none left, its default is that of ONNX
  Runtime (a ThresholdedRelu's alpha is 0, where the standard's operator has 1; those of Affine and
  ScaledTanh are 0).
- A model has at most 65536 nodes, those of its sub-graphs and called functions counted.
- Random operators, and Dropout in training, [draw by a seed](numerics.md#random-numbers): their
  own, or the input `random_seed`, which may be left out.
- Strings are numbers, places in a table of texts ([bundle](bundle.md#strings)): operators place and
  compare them (Identity, Reshape, Gather, Where, Equal, LabelEncoder, ..). Those that StringConcat,
  StringSplit, StringNormalizer and RegexFullMatch are given or make are bytes; what is made may be
  compared (Equal), looked up among labels, and moved, one tensor at a time. A pattern becomes a
  table of at most 2048 states: classes, repetition, alternatives, groups, anchors; `\\w` and others
  are of ASCII. Letters of one and two bytes change case.
- Tokenizer (com.microsoft) cuts at separators that cannot overlap, into single characters, or by a
  `tokenexp` that is a class of characters, repeated, as skl2onnx writes it. Its tokens, also behind
  StringNormalizer and what moves texts, are counted by TfIdfVectorizer, whose pool they are looked
  up in one by one.
- ai.onnx.ml: what the standard leaves open (scores of two classes made of one, transforms of one
  target, classes that no leaf votes for) is as ONNX Runtime has it: of several targets of trees,
  one that no leaf of a row speaks of is 0, without its base value, where onnx.reference has the
  base value, or the largest or least number for MIN and MAX. ZipMap gives the matrix of
  scores, a column for each label in their order. An input that
  is a map (DictVectorizer, CastMap with max_map) is a matrix with a column for each key that the
  model knows ([bundle](bundle.md#maps)); a dense CastMap, whose number of keys data says, is
  refused, as are maps to strings. Of the pipelines that skl2onnx writes, KNNImputer is refused: it
  branches on whether there are missing values, with tensors as long as there are.

Operators of com.microsoft are tested against ONNX Runtime, or against the same in ONNX operators
where it has none for CPUs (`tests/helpers/contrib_tables.py`). They end in the kernels of the model
written out. A model may leave out the import of that domain, as optimisers do. Their limits:

- Models that ONNX Runtime has optimised to ORT_ENABLE_BASIC or ORT_ENABLE_EXTENDED compile; what
  ORT_ENABLE_ALL writes, in layouts of one machine, is refused.
- GroupQueryAttention: the cache grows by the keys of the call, or, where the model declares as many
  keys after it as before, has room for them; then all of it is looked at, whatever is in use.
  Or it holds the last keys only (`sliding_window_cache`; rows behind those it holds may be
  anything). It may be of integers of 8 bits (i8) or 4 (u8), not of 8-bit floats. Past and present
  are two tensors; so they are of MultiHeadAttention and DecoderMaskedMultiHeadAttention, where
  buffers have room and `past_sequence_length` says how much is in use. Scores (`qk_output`, output
  3) of a cache with room need a declared shape; a cache of the last keys gives none.
- CausalConvWithState has one dimension of length (`ndim` 1); it, LinearAttention and those for rows
  of tokens keep the last state only (`state_window`, `state_update_capacity` 0). GatedDeltaNet
  takes requests of one length (no `cu_seqlens`).
- SparseAttention: the lists of blocks are constants; all keys are looked at, and those of other
  blocks left out. MurmurHash3 is of numbers. Pads of ConvTransposeWithDynamicPads are known while
  compiling.
- Codes of MatMulBnb4 (FP4, NF4) become floats while compiling.
- Weights of 2 and 4 bits are stored as one byte each, and become floats before they are multiplied;
  `accuracy_level` is taken as the exact one. Rows that are gathered stay packed.
- MoE and QMoE compute all experts, and leave out of the sum what the router did not pick.
- DynamicQuantizeLSTM rounds the data of a call, and the states of a step, to bytes by their own
  range, as ONNX Runtime does on one thread.
- BiasSoftmax: is_inner_broadcast is 1. GatherBlockQuantized: numbers packed into bytes lie along
  the last dimension.

Of what ONNX Runtime {runtime} has for CPUs these are not compiled:

{absent}

## Cases that do not pass

{missing}

## All operators

| operator | domain | opset | cases | dtypes |
|---|---|---|--:|---|
"""


def operators_of(graph):
    """(domain, operator) of every node, those in sub-graphs too."""
    for node in graph.node:
        yield ("" if node.domain == "ai.onnx" else node.domain), node.op_type
        for a in node.attribute:
            if a.HasField("g"):
                yield from operators_of(a.g)


def dtypes_of(graph):
    for info in (*graph.input, *graph.output):
        kind = info.type.tensor_type.elem_type
        name = dtype_name(kind) or stored_name(kind)
        if name:
            yield name


def absent():
    """A line for each reason with the operators of com.microsoft that are not compiled for it."""
    rows = defaultdict(list)
    for op, (why, instead) in NOT_COMPILED.items():
        if (MICROSOFT, op) not in OPS:
            rows[why, instead].append(op)
    return "\n".join(_lines(f"- {', '.join(ops)}: {why}; {instead}.")
                     for (why, instead), ops in rows.items())


def _lines(text):
    return "\n".join(wrap(text, 100, subsequent_indent="  ", break_long_words=False,
                          break_on_hyphens=False))


def missing(cases, listed):
    """A line for each reason with the cases that do not pass for it; KeyError for one without."""
    rows = defaultdict(list)
    for name in sorted(set(cases) - listed):
        start = next((s for s in REASONS if name.startswith(s)), None)
        if start is None:
            raise KeyError(f"REASONS says nothing of {name}")
        rows[REASONS[start]].append(name.partition("test_")[2])
    return "\n".join(_lines(f"- {', '.join(names)}: {why}.") for why, names in rows.items())


def text():
    """The page as it should be."""
    listed, cases = set(suite.passing()), suite.suite()
    passed, total, dtypes = defaultdict(int), defaultdict(int), defaultdict(set)
    for name, case in cases.items():
        graph = case.model().graph
        for op in set(operators_of(graph)) & set(OPS):
            total[op] += 1
            if name in listed:
                passed[op] += 1
                dtypes[op].update(dtypes_of(graph))
    rows = []
    for (domain, op), entries in sorted(OPS.items(), key=lambda kv: (kv[0][1], kv[0][0])):
        key = (domain, op)
        first = max(min(e.since for e in entries), 1 if domain else OLDEST)
        known = onnx.defs.has(op, domain)
        last = onnx.defs.get_schema(op, domain=domain).since_version if known else first
        versions = str(first) if last <= first else f"{first}..{last}"
        names = ", ".join(d for d in ORDER if d in dtypes[key]) or "-"
        rows.append(f"| {op} | {domain or 'ai.onnx'} | {versions} | {passed[key]} of {total[key]} "
                    f"| {names} |")
    head = HEAD.format(version=onnx.__version__, passed=len(listed & set(cases)), total=len(cases),
                       missing=missing(cases, listed), absent=absent(), runtime=RUNTIME)
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
    sys.exit(0)
