"""Golden cases for a small vision transformer with a class token, exported for a fixed batch: networks/vit.npz.

The exporters write the token as a constant with a row for each sample; mtz has to find out that all rows are equal."""

import io
import logging
import warnings

import torch
from torch import nn

import golden

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attention = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.block, self.norm, self.head = Block(width, 2), nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.block(x))[:, 0])


net = ViT().eval()
cases = {}
for batch in (1, 2):
    x = torch.randn(batch, 3, 8, 8)
    if batch == 1:  # for more samples, this exporter leaves an Expand of many numbers
        file = io.BytesIO()
        torch.onnx.export(net, (x,), file, opset_version=17, dynamo=False, input_names=["x"], output_names=["y"])
        golden.add(cases, "script_17_batch_1", file.getvalue(), [x.numpy()])
    names = {"input_names": ["x"], "output_names": ["y"]}
    program = torch.onnx.export(net, (x,), opset_version=18, dynamo=True, verbose=False, **names)
    golden.add(cases, f"dynamo_18_batch_{batch}", program.model_proto.SerializeToString(), [x.numpy()])
golden.save("networks/vit.npz", cases)
