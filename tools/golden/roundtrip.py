"""What mtz reads and writes again, onnxruntime must run with the same outputs: python roundtrip.py

Needs the golden files and cargo; every committed case (and the big ones, where they have been made) is tried."""

import pathlib
import subprocess
import tempfile

import numpy as np
import onnx

import golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
tried = 0
for folder in ("operators", "networks", "big"):
    for file in sorted((golden.GOLDEN / folder).glob("*.npz")):
        cases = np.load(file)
        names = [n.removesuffix("/model") for n in cases.files if n.endswith("/model")]
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            for name in names:
                (pathlib.Path(a) / f"{name}.onnx").write_bytes(cases[f"{name}/model"].tobytes())
            command = ["cargo", "run", "-q", "--release", "--example", "rewrite", "--", a, b]
            subprocess.run(command, cwd=ROOT, check=True)
            for name in names:
                inputs = [cases[f"{name}/in{i}"] for i in range(99) if f"{name}/in{i}" in cases.files]
                for kind in ("plain", "simple"):
                    model = (pathlib.Path(b) / f"{name}.{kind}.onnx").read_bytes()
                    onnx.checker.check_model(onnx.load_from_string(model))
                    for i, y in enumerate(golden.run(model, inputs)):
                        np.testing.assert_allclose(y, cases[f"{name}/out{i}"], 1e-4, 1e-5, err_msg=f"{file.stem}/{name} {kind}")
                    tried += 1
print(f"{tried} rewritten models: onnxruntime computes the same")
