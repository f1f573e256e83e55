#!/usr/bin/env python3
"""How time and memory of a zip grow with the width of the networks and with the samples, beside what --dry-run says.

usage: tools/growth.py MTZ FOLDER     needs numpy; takes some minutes on two cores; nothing else should run

Pairs of VGG-16 for 64x64 images with made-up weights (as good as those training begins with), all hidden layers shared, no retraining.
"""

import json
import os
import subprocess
import sys

import numpy as np

SIDE = 64
# Width and samples a task: one changes at a time.
RUNS = [(0.125, 256), (0.25, 256), (0.5, 256), (0.25, 64), (0.25, 128), (0.25, 512)]


def images(path, count, seed):
    """Blobs of several sizes: neighbouring pixels of photographs are alike."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, 3, SIDE, SIDE), np.float32)
    for size in (4, 16, 32):
        coarse = rng.normal(size=(count, 3, size, size)).astype(np.float32)
        x += coarse.repeat(SIDE // size, axis=2).repeat(SIDE // size, axis=3)
    y = np.arange(count) % 10
    np.savez(path, x=np.clip(128 + 36 * x, 0, 255).astype(np.uint8), y=y)


def call(arguments):
    """Runs mtz; its JSON, and the most memory that was resident."""
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(arguments)} ended with {status}")
    return json.loads(text), usage.ru_maxrss * 1024


def main():
    mtz, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for seed, task in enumerate("ab"):
        images(f"{task}-test.npz", 20, seed)
        for count in {count for _, count in RUNS}:
            images(f"{task}-{count}.npz", count, seed + 10)
    print("| width | samples a task | parameters | seconds | memory, MiB | `--dry-run`: seconds | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    for width, count in RUNS:
        zip_them = [mtz, "zip", "--retrain", "0", "--calibration", str(count), "-o", "joint.onnx", "--force", "--json"]
        for task in "ab":
            model = f"{task}-{width}.onnx"
            if not os.path.exists(model):
                call([mtz, "train", "vgg-16", "--width", str(width), "--data", f"{task}-test.npz", "--epochs", "1",
                      "--lr", "1e-6", "--seed", str(ord(task)), "-o", model, "--json"])
            zip_them += [f"{task}={model}", "--data", f"{task}={task}-{count}.npz", "--test", f"{task}={task}-test.npz"]
        said, _ = call([*zip_them, "--dry-run"])
        real, memory = call(zip_them)
        print(f"| {width} | {count} | {real['parameters']['before']} | {real['seconds']:.1f} | {memory / 2**20:.0f} "
              f"| {said['seconds']:.1f} | {said['peak_memory_bytes'] / 2**20:.0f} |", flush=True)


main()
