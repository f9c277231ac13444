"""The operators of ``cases`` as PyTorch has them, on the GPU: eager, replayed as a CUDA graph, or
through torch.compile."""

import importlib.util
import time
from dataclasses import replace

from benchmarks.gpu.timing import System


def why_not():
    """Why PyTorch cannot be measured here; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch
    return "" if torch.cuda.is_available() else "torch finds no GPU"


def tensors_of(case, feeds):
    """(inputs, weights) of a case as torch's tensors on the GPU, in the type it is computed in;
    weights of few bits as f16."""
    import torch
    from onnx import numpy_helper
    narrow = case.type in ("f16", "int8w", "int4w")
    dtype = {"bf16": torch.bfloat16, "s8": torch.int8}.get(
        case.type, torch.float16 if narrow else torch.float32)
    wanted = {"matmul": 1, "conv": 1, "norm": 2}.get(case.kind, 0)
    weights = []
    if wanted:
        model = (replace(case, type="f16") if narrow else case).model()
        weights = [numpy_helper.to_array(t) for t in model.graph.initializer[:wanted]]
    return tuple([torch.from_numpy(a.copy()).cuda().to(dtype) for a in of]
                 for of in (feeds.values(), weights))


def function_of(case):
    """The function of (inputs, weights)."""
    import torch
    from torch.nn import functional as f
    kind, sizes = case.kind, case.sizes
    if kind == "matmul":
        return torch._int_mm if case.type == "s8" else torch.matmul
    if kind == "conv":
        return lambda x, w: f.conv2d(x, w, stride=sizes[5])
    if kind == "pool":
        return lambda x: f.avg_pool2d(x, sizes[3], sizes[4])
    if kind == "map":
        return lambda x, w: f.gelu(x) * w
    if kind == "norm":
        return lambda x, scale, bias: f.layer_norm(x, x.shape[-1:], scale, bias)
    return {"attention": f.scaled_dot_product_attention, "columns": lambda x: x.sum(0),
            "softmax": lambda x: f.softmax(x, -1)}[kind]


def allow_tf32(allowed):
    """Whether products and convolutions of f32 may round their operands to tf32, from now on."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def on_gpu(array):
    """The array as a tensor on the GPU."""
    import torch
    return torch.from_numpy(array.copy()).cuda()


def wait():
    """Until the GPU has done what PyTorch asked of it."""
    import torch
    torch.cuda.synchronize()


def eager(function, args):
    """The System of ``function(*args)``."""
    import torch

    def call():
        with torch.no_grad():
            return function(*args)
    return System(call, wait)


def captured(function, args):
    """The same as a CUDA graph that is replayed."""
    import torch
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            function(*args)
    wait()
    with torch.no_grad(), torch.cuda.graph(graph):
        function(*args)
    return System(graph.replay, wait)


def compiled(function, args, mode):
    """The same through torch.compile, compiled when this returns; mode: as torch has it."""
    import torch

    def traced(*tensors):
        return function(*tensors)
    made = torch.compile(traced, mode=mode)
    system = eager(made, args)
    for _ in range(3):
        system.call()
    wait()
    return system


def copy_rate(nbytes):
    """Bytes per second that copies inside the GPU's memory read and write together."""
    import torch
    x, y = (torch.empty(nbytes, dtype=torch.uint8, device="cuda").random_(0, 256)
            for _ in range(2))
    best = float("inf")
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(20):
            y.copy_(x)
        wait()
        best = min(best, (time.perf_counter() - start) / 20)
    return 2 * nbytes / best


__all__ = ["allow_tf32", "captured", "compiled", "copy_rate", "eager", "function_of",
           "on_gpu", "tensors_of", "wait", "why_not"]
