"""ONNX -> Graph -> Program.  The only part of aotc that knows what an operator is."""

from aotc.frontend.building.convert import to_program
from aotc.frontend.graph import DimRange, Graph, Node
from aotc.frontend.ops.contrib import (
                    ops_algebra,
                    ops_attention,
                    ops_blocks,
                    ops_crops,
                    ops_experts,
                    ops_fused,
                    ops_gates,
                    ops_group_query,
                    ops_hashes,
                    ops_qlinear,
                    ops_recurrence,
                    ops_token_rows,
                    ops_twins,
                    ops_warp,
)
from aotc.frontend.ops.images import (
                    ops_boxes,
                    ops_conv,
                    ops_grid,
                    ops_pool,
                    ops_regions,
                    ops_resize,
                    ops_sample,
)
from aotc.frontend.ops.ml import ops_encode, ops_features, ops_linear, ops_ngrams, ops_trees
from aotc.frontend.ops.numeric import (
                    ops_det,
                    ops_math,
                    ops_matmul,
                    ops_nn,
                    ops_norm,
                    ops_quant,
                    ops_quant_extra,
                    ops_random,
                    ops_recurrent,
                    ops_reduce,
                    ops_signal,
                    ops_train,
)
from aotc.frontend.ops.tensors import (
                    ops_control,
                    ops_cumulative,
                    ops_gather,
                    ops_loop,
                    ops_range,
                    ops_scan,
                    ops_scatter,
                    ops_select,
                    ops_sequence,
                    ops_shape,
                    ops_slice,
                    ops_strings,
                    ops_tokens,
)
from aotc.frontend.read.load import load_model, model_digest
from aotc.frontend.read.reader import read_built, read_graph

OPERATOR_MODULES = (ops_algebra, ops_attention, ops_blocks, ops_boxes, ops_control, ops_conv,
                    ops_crops, ops_cumulative, ops_det, ops_encode, ops_experts, ops_features,
                    ops_fused, ops_gates, ops_gather, ops_grid, ops_group_query, ops_hashes,
                    ops_linear, ops_loop, ops_math, ops_matmul, ops_ngrams, ops_nn, ops_norm,
                    ops_pool, ops_qlinear, ops_quant, ops_quant_extra, ops_random, ops_range,
                    ops_recurrence, ops_recurrent, ops_reduce, ops_regions, ops_resize, ops_sample,
                    ops_scan, ops_scatter, ops_select, ops_sequence, ops_shape, ops_signal,
                    ops_slice, ops_strings, ops_token_rows, ops_tokens, ops_train, ops_trees,
                    ops_twins, ops_warp)

__all__ = ["load_model", "model_digest", "read_built", "read_graph", "to_program", "Graph", "Node",
           "DimRange"]
