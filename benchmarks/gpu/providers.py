"""ONNX Runtime on the GPU, by its CUDA provider and by TensorRT, inputs and outputs in device
memory."""

from benchmarks.gpu.timing import System

PROVIDERS = {"CUDA": "CUDAExecutionProvider", "TensorRT": "TensorrtExecutionProvider"}
OPTIONS = {"TensorrtExecutionProvider": {"trt_fp16_enable": True}}  # f32 models aren't given to it


def provider_systems(path, feeds, row):
    """{name: System} of the model in ``path`` on arrays ``feeds``; why one is missing goes into
    ``row``."""
    try:
        import onnxruntime
    except ImportError:
        row["onnxruntime"] = "not installed"
        return {}
    found, there = {}, onnxruntime.get_available_providers()
    for name, provider in PROVIDERS.items():
        if provider not in there:
            row[f"onnxruntime {name}"] = f"has no {provider} here"
            continue
        try:
            system = _bound(onnxruntime, path, feeds, provider)
            system.call()
            found[f"onnxruntime {name}"] = system
        except Exception as err:  # what a provider lacks, it says with exceptions of its own
            row[f"onnxruntime {name}"] = f"{type(err).__name__}: {err}".splitlines()[0][:120]
    return found


def _bound(onnxruntime, path, feeds, provider):
    """The System of a session whose inputs lie on the device; a run ends when its results are
    there."""
    session = onnxruntime.InferenceSession(
        str(path), providers=[(provider, OPTIONS.get(provider, {})), PROVIDERS["CUDA"]])
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"{provider} is not to be had: it fell back to another")
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(
            array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    return System(lambda: session.run_with_iobinding(binding), lambda: None)


__all__ = ["PROVIDERS", "provider_systems"]
