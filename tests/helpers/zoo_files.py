"""Where the model zoo lies, and its own scripts."""

import importlib.util
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In every default run: a transformer, a mobile CNN, a recommender, and dynamic rows.
SMALL = ("bert_tiny", "squeezenet1_1", "dlrm", "dense_dynamic")
SMALLEST = ("squeezenet1_1", "dense_dynamic")  # compiled as a whole in the default suite too
OTHERS = ("bert_base", "bert_small", "bert_small_dyn", "bsrn", "conformer", "densenet121",
          "gpt2", "gpt2_dyn", "mobilenet_v2", "mobilevit_s", "nafnet", "nerf_mlp", "resnet18",
          "resnet3d18", "resnet50", "restormer", "swin_tiny", "unet", "vgg16", "vit_base_16")


def zoo_folder():
    """Folder of the zoo's stubs: AOTC_ZOO, else ../shared/zoo beside the repository."""
    return Path(os.environ.get("AOTC_ZOO", ROOT.parent / "shared" / "zoo"))


def zoo_module(name):
    """A module of the zoo's own scripts (materialize, reference)."""
    spec = importlib.util.spec_from_file_location(f"zoo_{name}", zoo_folder() / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
