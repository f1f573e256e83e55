"""Golden cases for models stored as f16: tests/golden/half/half.npz. Their names say how the file was made.

onnxruntime rounds what layers compute to f16, mtz does not: the test allows for that."""

import io
import logging
import warnings

import onnx
import torch
from onnxconverter_common.float16 import convert_float_to_float16
from torch import nn

import golden

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(0)

net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2),
    nn.Conv2d(8, 12, 3, stride=2), nn.LeakyReLU(0.1),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 20), nn.Hardtanh(0, 3), nn.Linear(20, 5),
)  # fmt: skip
net[1].running_mean.normal_()
net[1].running_var.uniform_(0.5, 2)
net.eval()
x = torch.randn(2, 3, 12, 12)


def export(net, x):
    file = io.BytesIO()
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    torch.onnx.export(net, (x,), file, opset_version=17, dynamo=False, dynamic_axes=axes, input_names=["x"],
                      output_names=["y"], do_constant_folding=False, training=torch.onnx.TrainingMode.EVAL)
    return file.getvalue()


single = export(net, x)
convert = lambda **options: convert_float_to_float16(onnx.load_from_string(single), **options)
cases = {}
golden.add(cases, "single", single, [x.numpy()])
golden.add(cases, "converter", convert(), [x.numpy()])
golden.add(cases, "converter_keep_io_types", convert(keep_io_types=True), [x.numpy()])
golden.add(cases, "converter_mixed", convert(op_block_list=["BatchNormalization"]), [x.numpy()])
golden.add(cases, "torch_half", export(net.half(), x.half()), [x.half().numpy()])
golden.save("half/half.npz", cases)
