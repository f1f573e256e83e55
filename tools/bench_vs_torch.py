"""mtz against PyTorch on the same work, alternating in one run: python tools/bench_vs_torch.py [--rounds 5] [--only TEXT]

PyTorch runs in its default and its channels_last layout; the better of the two counts. Prints milliseconds (median of the
rounds), the ratio mtz / PyTorch and its spread over the rounds. Needs torch and numpy (tools/golden/requirements.txt)."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = [("lenet-300-100", 64), ("lenet-5", 64), ("resnet-20", 64), ("vgg-16@32", 32), ("resnet-18@224", 4)]

TORCH = r'''
import sys, time, torch
from torch import nn
work, arch, batch, threads, seconds, last = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
torch.set_num_threads(threads); torch.manual_seed(0)
def median(f):
    f(); f(); times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 3:
        t = time.perf_counter(); f(); times.append(1000 * (time.perf_counter() - t))
    print(sorted(times)[len(times) // 2]); sys.exit()
if work == "gram":
    x = torch.randn(batch, int(arch)); median(lambda: x.T @ x)
if work == "cholesky":
    a = torch.ones(int(arch), int(arch), dtype=torch.float64) + int(arch) * torch.eye(int(arch), dtype=torch.float64)
    median(lambda: torch.linalg.cholesky(a))
name, _, side = arch.partition("@"); side = int(side or 32)
channels, side = (1, 28) if name.startswith("lenet") else (3, side)
def conv(i, o, k, s=1, p=0, bias=False): return nn.Conv2d(i, o, k, s, p, bias=bias)
class Block(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.f = nn.Sequential(conv(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU(True), conv(o, o, 3, 1, 1), nn.BatchNorm2d(o))
        self.s = nn.Identity() if s == 1 and i == o else nn.Sequential(conv(i, o, 1, s), nn.BatchNorm2d(o))
    def forward(self, x): return torch.relu(self.f(x) + self.s(x))
def resnet(stem, widths, blocks, c):
    layers = list(stem)
    for g, w in enumerate(widths):
        for b in range(blocks): layers.append(Block(c, w, 2 if g and not b else 1)); c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))
def vgg():
    layers, c = [], 3
    for g in ([64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3):
        for o in g: layers += [conv(c, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(True)]; c = o
        layers.append(nn.MaxPool2d(2))
    n = 512 * (side // 32) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(n, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 10))
net = {"lenet-300-100": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)),
 "lenet-5": lambda: nn.Sequential(conv(1, 20, 5, bias=True), nn.MaxPool2d(2), conv(20, 50, 5, bias=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
 "resnet-20": lambda: resnet([conv(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(True)], (16, 32, 64), 3, 16),
 "resnet-18": lambda: resnet([conv(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], (64, 128, 256, 512), 2, 64),
 "vgg-16": vgg}[name]()
x = torch.randn(batch, channels, side, side)
if last: net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
y = torch.arange(batch) % 10
opt = torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9)
def step():
    opt.zero_grad(set_to_none=False)
    nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
def infer():
    with torch.inference_mode(): net(x)
if work == "train": net.train(); f = step
else: net.eval(); f = infer
median(f)
'''


def run(command):
    return float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=int, default=2)
parser.add_argument("--only", default="")
parser.add_argument("--json", help="also write the rows here")
args = parser.parse_args()
subprocess.run(["cargo", "build", "-q", "--release", "--example", "bench"], cwd=ROOT, check=True)
rows = []
print(f"{'work':44} {'mtz ms':>9} {'torch ms':>9} {'ratio':>6}  spread")
MATRICES = [("gram", "576", 50176), ("cholesky", "4096", 1)]
ALL = [(work, arch, batch) for work in ("train", "infer") for arch, batch in WORK] + MATRICES
for work, arch, batch in ALL:
    for threads in (1, 2):
        what = {"gram": f"{batch} samples of {arch} inputs", "cholesky": f"{arch} (f64)"}.get(work, f"{arch}, batch {batch}")
        label = f"{work} {what}, {threads} thread{'s' * (threads > 1)}"
        if args.only not in label:
            continue
        common = [work, arch, str(batch), str(threads), str(args.seconds)]
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(run([str(ROOT / "target/release/examples/bench"), *common]))
            theirs.append(min(run([sys.executable, "-c", TORCH, *common, last]) for last in "01"))
        ratios = sorted(a / b for a, b in zip(ours, theirs))
        a, b = statistics.median(ours), statistics.median(theirs)
        rows.append({"work": label, "mtz_ms": a, "torch_ms": b, "ratio": a / b, "low": ratios[0], "high": ratios[-1]})
        print(f"{label:44} {a:9.2f} {b:9.2f} {a / b:6.2f}  {ratios[0]:.2f}-{ratios[-1]:.2f}", flush=True)
mean = statistics.geometric_mean(r["ratio"] for r in rows)
print(f"geometric mean of {len(rows)} ratios: {mean:.2f}")
if args.json:
    pathlib.Path(args.json).write_text(json.dumps({"rows": rows, "geometric_mean": mean}, indent=1) + "\n")
