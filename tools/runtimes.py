"""Every file mtz writes, in every runtime: do they load it, and do they compute the same?

    python tools/runtimes.py [path of mtz]          makes files with train, prune, zip and extract, and tries them
    python tools/runtimes.py --files FOLDER         tries the files in a folder

Prints the largest difference from onnxruntime with all optimisations, as a part of the largest answer, and exits with
1 if a runtime refuses a file or differs.
Versions: tools/requirements-runtimes.txt."""

import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import cv2
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
onnxruntime.set_default_logger_severity(4)
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
TOLERANCE = {"f32": 1e-4, "f16": 3e-2}


def session(file, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def unoptimised(file, feed, outputs):
    return session(file, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL).run(outputs, feed)


def checker(file, feed, outputs):
    onnx.checker.check_model(str(file), full_check=True)


def reference(file, feed, outputs):
    return ReferenceEvaluator(str(file)).run(outputs, feed)


def opencv(file, feed, outputs):
    net = cv2.dnn.readNetFromONNX(str(file))
    for name, x in feed.items():
        net.setInput(x.astype(np.float32), name)
    return net.forward(outputs)


def onnx2torch(file, feed, outputs):
    import onnx2torch
    import torch

    net = onnx2torch.convert(onnx.load(file)).eval()
    with torch.no_grad():
        answers = net(*(torch.from_numpy(x) for x in feed.values()))
    return [y.numpy() for y in (answers if isinstance(answers, (tuple, list)) else [answers])]


RUNTIMES = {
    "unoptimised": unoptimised,
    "checker": checker,
    "reference": reference,
    "opencv": opencv,
    "onnx2torch": onnx2torch,
}
# onnx2torch has no operator that computes weights, so it takes files of one dense network only.
EXCEPTIONS = {"onnx2torch": ("zip", "prune")}


def difference(got, want):
    scale = max(float(np.abs(y).max()) for y in want) or 1.0
    pairs = zip(got, want, strict=True)
    return max(float(np.abs(np.asarray(a, np.float64).reshape(b.shape) - b).max()) for a, b in pairs) / scale


def try_file(file):
    """A cell for each runtime, and whether all is well."""
    best = session(file)
    random = np.random.default_rng(0)
    feed = {i.name: random.random([2, *i.shape[1:]]).astype(KINDS[i.type]) for i in best.get_inputs()}
    outputs = [o.name for o in best.get_outputs()]
    want = best.run(outputs, feed)
    want = [np.asarray(y, np.float64) for y in want]
    kind = "f16" if any(t.data_type == onnx.TensorProto.FLOAT16 for t in onnx.load(file).graph.initializer) else "f32"
    cells, well = [], all(np.isfinite(y).all() for y in want)
    for name, run in RUNTIMES.items():
        expected = any(part in file.name for part in EXCEPTIONS.get(name, ()))
        try:
            got = run(file, feed, outputs)
            far = 0.0 if got is None else difference(got, want)
            cells.append("ok" if got is None else f"{far:.0e}")
            well &= far < TOLERANCE[kind] or expected
        except Exception as error:  # whatever it refuses, and why
            cells.append("-" if expected else "refused")
            if not expected:
                well = False
                print(f"{file.name}: {name}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
    return cells, well


def make(program, folder):
    """Files of every command, from networks that have seen a few samples of noise."""

    def mtz(*args):
        subprocess.run([program, *map(str, args), "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    random = np.random.default_rng(0)
    for name, shape in {"grey": (1, 28, 28), "colour": (3, 32, 32)}.items():
        samples = random.integers(0, 256, (200, *shape), np.uint8)
        np.savez(folder / f"{name}.npz", x=samples, y=random.integers(0, 5, 200))
    networks = [("lenet-300-100", "grey", 1), ("lenet-5", "grey", 1)]
    networks += [("resnet-20", "colour", 0.25), ("mobilenet-v2", "colour", 0.25)]
    for name, data, width in networks:
        data = folder / f"{data}.npz"
        for seed in "12":
            to = f"{name}.train-{seed}.onnx"
            mtz("train", name, "--data", data, "--width", width, "--epochs", 1, "--seed", seed, "-o", to)
        mtz("prune", f"{name}.train-1.onnx", "--data", data, "--sparsity", 0.9, "-o", f"{name}.prune.onnx")
        both = [f"a={name}.train-1.onnx", f"b={name}.train-2.onnx", "--data", data, "--retrain", 0]
        for share in ("all", "0.5"):
            mtz("zip", *both, "--share", share, "-o", f"{name}.zip-{share}.onnx")
            mtz("zip", *both, "--share", share, "--common-input", "-o", f"{name}.zip-{share}-common.onnx")
            mtz("extract", f"{name}.zip-{share}.onnx", "--task", "b", "-o", f"{name}.extract-{share}.onnx")
        mtz("zip", *both, "--dtype", "f16", "-o", f"{name}.zip-f16.onnx")
        mtz("extract", f"{name}.zip-f16.onnx", "--task", "b", "-o", f"{name}.extract-f16.onnx")
    for file in sorted((ROOT / "models").glob("*.onnx")):
        (folder / f"bundled.{file.name}").write_bytes(file.read_bytes())


def main():
    if sys.argv[1:2] == ["--files"]:
        return table(pathlib.Path(sys.argv[2]))
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/mtz").resolve()
    with tempfile.TemporaryDirectory() as folder:
        make(program, pathlib.Path(folder))
        return table(pathlib.Path(folder))


def table(folder):
    files = sorted(folder.glob("*.onnx"))
    failed = 0 if files else 1
    print("| file | kB | " + " | ".join(RUNTIMES) + " |\n" + "|---" * (2 + len(RUNTIMES)) + "|")
    for file in files:
        cells, well = try_file(file)
        failed += not well
        cells = [file.stem, f"{file.stat().st_size / 1000:.0f}", *cells]
        print(f"| {' | '.join(cells)} |" + ("" if well else " **failed**"), flush=True)
    print(f"{len(files)} files, {failed} with a failure")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
