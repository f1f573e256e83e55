"""Gradients by PyTorch for every operator and for whole networks: python gradients.py

Each case is a PyTorch module in training mode, exported to ONNX. Its loss is Σ output · r for a random r. Stored are the
model, the input (in0), r, the output, and the gradients of the input (grad/INPUT) and of each parameter (grad/NAME)."""

import io
import logging
import warnings

import numpy as np
import onnx
import torch
from torch import nn

import golden
import models

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(1)
F = nn.functional
SEEN: dict[str, set] = {}


class Apply(nn.Module):
    """A function of the input and of parameters."""

    def __init__(self, f, *shapes, positive=False):
        super().__init__()
        self.f = f
        self.w = nn.ParameterList([torch.rand(s) + 0.5 if positive else torch.randn(s) for s in shapes])

    def forward(self, x):
        return self.f(x, *self.w)


def export(net, x, opset, state):
    file = io.BytesIO()
    torch.onnx.export(net, (x,), file, opset_version=opset, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}},
                      do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, keep_initializers_as_inputs=False)
    model = onnx.load_from_string(file.getvalue())
    for i in model.graph.initializer:  # exporting ran the network once, which moved the running statistics
        if "running" in i.name:
            i.CopyFrom(onnx.numpy_helper.from_array(state[i.name].numpy(), i.name))
    for node in model.graph.node:
        if node.op_type == "Cast":  # PyTorch exports no Identity of its own; mtz drops casts when it reads a model
            node.op_type = "Identity"
            del node.attribute[:]
        if node.op_type == "BatchNormalization":  # exported for training; mtz trains what is written for inference
            del node.output[1:]
            for a in node.attribute:
                a.i = 0 if a.name == "training_mode" else a.i
    return model.SerializeToString()


def case(file, name, net, x, ops=(), opset=17):
    net.train()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    model = export(net, x, opset, state)
    net.load_state_dict(state)
    proto = onnx.load_from_string(model)
    used = {n.op_type for n in proto.graph.node}
    assert set(ops) <= used, (name, ops, used)
    leaf = x.clone().requires_grad_()
    y = net(leaf)
    r = torch.randn_like(y)
    (y * r).sum().backward()
    cases = FILES.setdefault(file, {})
    arrays = {"model": np.frombuffer(model, np.uint8), "in0": x.numpy(), "r": r.numpy(), "out0": y.detach().numpy(), "grad/x": leaf.grad.numpy()}
    if x.numel() > 3000:
        del arrays["grad/x"]
    stored = {i.name for i in proto.graph.initializer}
    for key, p in net.named_parameters():
        assert key in stored, (name, key, stored)
        # The large weights of whole networks would be too much to commit; what flows through them shows in the others.
        if p.grad is not None and (p.numel() <= 600 or not file.startswith("network")):
            arrays[f"grad/{key}"] = p.grad.numpy()
    for key, b in net.named_buffers():
        if "running" in key:
            arrays[f"running/{key}"] = b.numpy()
    cases.update({f"{name}/{k}": v for k, v in arrays.items()})
    SEEN.setdefault("ops", set()).update(used)


FILES: dict[str, dict] = {}


def op(name, f, x, *shapes, ops=None, opset=17, positive=False):
    case(name.split("_")[0], name, Apply(f, *shapes, positive=positive), x, ops if ops is not None else (name.split("_")[0],), opset)


image, flat = torch.randn(3, 4, 6, 5), torch.randn(4, 7)
op("Relu", lambda x: F.relu(x), image)
op("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), image)
op("Sigmoid", lambda x: torch.sigmoid(x), image)
op("Tanh", lambda x: torch.tanh(x), image)
op("HardSwish", lambda x: F.hardswish(3 * x), image, ops=())
op("HardSigmoid", lambda x: F.hardsigmoid(3 * x), image)
op("Erf", lambda x: torch.erf(x), flat)
op("Sqrt", lambda x: torch.sqrt(x * x + 1), flat)
op("Gelu", lambda x: F.gelu(x), image, opset=20)
op("Gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), image, opset=20)
op("Clip", lambda x: torch.clamp(x, -0.5, 0.7), image)
op("PRelu", lambda x, w: F.prelu(x, w), image, 4)
op("Pow_square", lambda x: x**2.0, flat)
op("Pow_any", lambda x: (x * x + 0.5) ** 1.7, flat)
op("Add", lambda x, w: x + w, image, (4, 1, 1), ops=("Add",))
op("Sub", lambda x, w: w - x, image, (1, 1, 5))
op("Mul", lambda x, w: x * w, image, (4, 1, 1))
op("Mul_square", lambda x: x * x * x, flat)
op("Div", lambda x, w: x / w, image, (4, 6, 5), positive=True)
op("Div_by_x", lambda x, w: w / (x * x + 1), flat, 7)
op("Softmax", lambda x: F.softmax(x, -1), flat)
op("Softmax_channel", lambda x: F.softmax(x, 1), image)
op("LogSoftmax", lambda x: F.log_softmax(x, -1), flat)
op("MatMul", lambda x, w: torch.matmul(x, w), torch.randn(2, 3, 5), (5, 4))
op("MatMul_batched", lambda x, w: torch.matmul(x, w), torch.randn(2, 3, 4, 5), (3, 5, 2))
op("MatMul_self", lambda x: torch.matmul(x, x.transpose(1, 2)), torch.randn(2, 3, 5), ops=("MatMul", "Transpose"))
op("Gemm", lambda x, w, b: F.linear(x, w, b), flat, (5, 7), 5)
op("Concat", lambda x, w: torch.cat([x, x * w, x[:, :1]], 1), image, (4, 1, 1), ops=("Concat", "Slice"))
op("Flatten", lambda x: torch.flatten(x, 1), image)
op("Reshape", lambda x: x.reshape(-1, 2, 60), image)
op("Squeeze", lambda x: x.unsqueeze(1).squeeze(1) * 2, image, ops=("Squeeze", "Unsqueeze"))
op("Transpose", lambda x: x.permute(0, 2, 3, 1), image)
op("Pad", lambda x: F.pad(x, (1, 2, 0, 3), value=2.0), image)
op("Pad_reflect", lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), image)
op("Pad_edge", lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), image)
op("Slice", lambda x: x[:, 1:3, ::2], image)
op("Gather", lambda x: x[:, torch.tensor([2, 0, 2])], image)
op("Resize_nearest", lambda x: F.interpolate(x, scale_factor=2.0), image)
op("Resize_linear", lambda x: F.interpolate(x, size=(9, 13), mode="bilinear"), image)
op("ReduceMean", lambda x: x.mean((2, 3)), image)
op("ReduceMean_channel", lambda x: x.mean(1, keepdim=True), image)
op("GlobalAveragePool", lambda x: F.adaptive_avg_pool2d(x, 1), image)
op("MaxPool", lambda x: F.max_pool2d(x, 3, 2, 1), image)
op("MaxPool_ties", lambda x: F.max_pool2d(F.relu(x - 1), 2), image, ops=("MaxPool",))
op("AveragePool", lambda x: F.avg_pool2d(x, 3, 2, 1), image)
op("AveragePool_inside", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), image)
op("Identity", lambda x: x.double().float() * 1.5, image)
case("LayerNormalization", "LayerNormalization", nn.LayerNorm(5), image, ("LayerNormalization",))
case("LayerNormalization", "LayerNormalization_image", nn.LayerNorm((6, 5)), image, ("LayerNormalization",))
for name, conv, x in [
    ("plain", nn.Conv2d(4, 6, 3), image), ("padded", nn.Conv2d(4, 6, 3, padding=1), image), ("stride", nn.Conv2d(4, 6, 3, 2, 1), image),
    ("dilation", nn.Conv2d(4, 3, 3, dilation=2, padding=2), image), ("groups", nn.Conv2d(4, 6, 3, padding=1, groups=2), image),
    ("depthwise", nn.Conv2d(4, 4, 3, padding=1, groups=4), image), ("depthwise_stride", nn.Conv2d(4, 8, 3, 2, 1, groups=4, bias=False), image),
    ("pointwise", nn.Conv2d(4, 7, 1), image), ("pointwise_stride", nn.Conv2d(4, 7, 1, 2, bias=False), image), ("five", nn.Conv2d(4, 3, 5, padding=(2, 1)), image),
    ("line", nn.Conv1d(4, 6, 3, 2, 1), torch.randn(3, 4, 9)), ("one_channel", nn.Conv2d(1, 6, 5), torch.randn(5, 1, 8, 9)),
]:
    case("Conv", f"Conv_{name}", conv, x, ("Conv",))
for name, norm, x in [("image", nn.BatchNorm2d(4), image), ("matrix", nn.BatchNorm1d(7), flat), ("momentum", nn.BatchNorm2d(4, momentum=0.3, eps=1e-2), image)]:
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    case("BatchNormalization", f"BatchNormalization_{name}", norm, x, ("BatchNormalization",))

for name, net, shape in models.networks():
    if name in ("mobilenet_v2", "squeezenet"):
        continue  # too large to commit with their gradients; their operators are all above
    for module in list(net.modules()):  # dropout draws other random numbers here than there
        for key, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, key, nn.Identity())
    case(f"network_{name}", name, net, torch.randn(2, *shape).round(decimals=2))

for file, cases in FILES.items():
    golden.save(f"gradients/{file}.npz", cases)
print(sorted(SEEN["ops"]))
