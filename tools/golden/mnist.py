"""Small MNIST networks trained and judged by PyTorch: `mtz eval` must find the same number of wrong answers.

    python mnist.py     writes crates/mtz-cli/tests/models/*.onnx and expected.json
"""

import gzip
import json
import logging
import pathlib
import warnings

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(0)
ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "crates/mtz-cli/tests/models"


def idx(name):
    data = gzip.open(ROOT / "data/mnist" / name).read()
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=16 if "images" in name else 8).copy())


def images(part):
    return idx(f"{part}-images-idx3-ubyte.gz").reshape(-1, 1, 28, 28) / 255.0, idx(f"{part}-labels-idx1-ubyte.gz").long()


convnet = nn.Sequential(nn.Conv2d(1, 8, 5, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Flatten(), nn.Linear(256, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 10))
mlp = nn.Sequential(nn.Linear(784, 24), nn.Tanh(), nn.Linear(24, 10), nn.LogSoftmax(1))
NETWORKS = {
    "digits": dict(net=convnet, flags=[], shape=lambda x: x),
    "digits-mlp": dict(net=mlp, flags=["--mean", "0.1307", "--std", "0.3081"], shape=lambda x: ((x - 0.1307) / 0.3081).flatten(1)),
}

x, y = images("train")
test_x, test_y = images("t10k")
expected = {}
for name, n in NETWORKS.items():
    net, shape = n["net"], n["shape"]
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(4):
        for i in torch.randperm(len(x)).split(100):
            loss = nn.functional.cross_entropy(net(shape(x[i])), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        out = net(shape(test_x))
    wrong = int((out.argmax(1) != test_y).sum())
    expected[name] = {"flags": n["flags"], "wrong": wrong, "samples": len(test_y), "loss": float(nn.functional.cross_entropy(out.double(), test_y))}
    sample = shape(test_x[:2])
    if name == "digits":
        torch.onnx.export(net, (sample,), OUT / f"{name}.onnx", dynamo=True, dynamic_shapes=({0: torch.export.Dim("n")},), external_data=False, verbose=False)
    else:  # a fixed batch of one, as the exporter does by default
        torch.onnx.export(net, (sample[:1],), OUT / f"{name}.onnx", dynamo=False)
    print(name, expected[name], (OUT / f"{name}.onnx").stat().st_size)
(OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
