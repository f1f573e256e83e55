"""Golden cases for whole networks with random weights, exported from PyTorch by both exporters.

    python networks.py          narrow versions, small enough to commit
    python networks.py --big    the real widths, into tests/golden/big (not committed; tested when present)
"""

import io
import logging
import sys
import warnings

import torch

import golden
import models

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(0)
BIG = "--big" in sys.argv


def script(net, x, opset, fixed=False):
    file = io.BytesIO()
    axes = None if fixed else {"x": {0: "n"}, "y": {0: "n"}}
    torch.onnx.export(net, (x,), file, opset_version=opset, dynamo=False, dynamic_axes=axes, input_names=["x"], output_names=["y"],
                      do_constant_folding=False, training=torch.onnx.TrainingMode.EVAL)
    return file.getvalue()


def dynamo(net, x, opset, optimize=True):
    program = torch.onnx.export(net, (x,), opset_version=opset, dynamo=True, dynamic_shapes=({0: torch.export.Dim("n")},), input_names=["x"],
                                output_names=["y"], optimize=optimize, verbose=False)
    return program.model_proto.SerializeToString()


for name, net, shape in models.full_width() if BIG else models.networks():
    models.randomize(net)
    net.eval()
    x = torch.randn(2, *shape)
    cases = {}
    golden.add(cases, "script_17", script(net, x, 17), [x.numpy()])
    golden.save(f"{'big' if BIG else 'networks'}/{name}.npz", cases, None if BIG else golden.LIMIT)
    if not BIG:
        # The same network with its weights again and again would be too large: all variants for the small ones only.
        few = name not in ("lenet5", "densenet", "unet", "modern")
        for variant, model in {
            "script_9": lambda: script(net, x, 9),
            "script_13_fixed_batch": lambda: script(net, x, 13, fixed=True),
            "dynamo_18": lambda: dynamo(net, x, 18),
            "dynamo_20_plain": lambda: dynamo(net, x, 20, optimize=False),
            "dynamo_23": lambda: dynamo(net, x, 23),
        }.items():
            if few and variant != ("dynamo_20_plain" if name == "resnet18" else "dynamo_18"):
                continue
            if (name, variant) == ("modern", "dynamo_20_plain"):
                continue  # unoptimised, torch.chunk becomes a sequence of tensors, which mtz has no use for
            cases = {}
            try:
                golden.add(cases, variant, model(), [x.numpy()])
            except Exception as e:  # an exporter that cannot say it in this opset
                print(f"{name} {variant}: not exported: {str(e).splitlines()[0][:150]}")
                continue
            golden.save(f"networks/{name}_{variant}.npz", cases)
