"""How golden cases are stored: one .npz holds several cases; case NAME has arrays NAME/model (the bytes of the ONNX
file), NAME/in0, NAME/in1, … and NAME/out0, … as onnxruntime computes them."""

import pathlib

import numpy as np
import onnxruntime

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "crates/mtz/tests/golden"
LIMIT = 100_000


def run(model: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes, without its own rewriting."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
    feed = {i.name: x.astype(kinds[i.type]) for i, x in zip(session.get_inputs(), inputs, strict=True)}
    return [y.astype(np.float32) for y in session.run(None, feed)]


def add(cases: dict, name: str, model, inputs: list[np.ndarray]) -> None:
    """Runs a model and files it under a name."""
    if not isinstance(model, bytes):
        model = model.SerializeToString()
    cases[f"{name}/model"] = np.frombuffer(model, np.uint8)
    for i, x in enumerate(inputs):
        cases[f"{name}/in{i}"] = x.astype(np.float32)
    for i, y in enumerate(run(model, inputs)):
        cases[f"{name}/out{i}"] = y


def save(path: str, cases: dict, limit: int | None = LIMIT) -> None:
    """Writes the cases, compressed; refuses files too large to commit."""
    target = GOLDEN / path
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, **cases)
    size = target.stat().st_size
    assert limit is None or size < limit, f"{target} has {size} bytes"
    print(f"{target.name}: {len({c.split('/')[0] for c in cases})} cases, {size} bytes")
