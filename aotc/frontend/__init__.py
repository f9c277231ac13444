"""ONNX -> Graph -> Program.  The only part of aotc that knows what an operator is."""

from aotc.frontend import (
                           ops_boxes,
                           ops_control,
                           ops_conv,
                           ops_gather,
                           ops_grid,
                           ops_math,
                           ops_matmul,
                           ops_nn,
                           ops_norm,
                           ops_pool,
                           ops_quant,
                           ops_quant_extra,
                           ops_recurrent,
                           ops_reduce,
                           ops_resize,
                           ops_sample,
                           ops_scatter,
                           ops_select,
                           ops_sequence,
                           ops_shape,
                           ops_signal,
                           ops_slice,
                           ops_train,
                           ops_trees,
)
from aotc.frontend.convert import to_program
from aotc.frontend.graph import DimRange, Graph, Node
from aotc.frontend.load import load_model, model_digest
from aotc.frontend.read import read_graph

OPERATOR_MODULES = (ops_boxes, ops_control, ops_conv, ops_gather, ops_grid, ops_math, ops_matmul,
                    ops_nn, ops_norm, ops_pool, ops_quant, ops_quant_extra, ops_recurrent,
                    ops_reduce, ops_resize, ops_sample, ops_scatter, ops_select, ops_sequence,
                    ops_shape, ops_signal, ops_slice, ops_train, ops_trees)

__all__ = ["load_model", "model_digest", "read_graph", "to_program", "Graph", "Node", "DimRange"]
