#!/usr/bin/env python3
"""Time and memory of zips of large networks, beside what --dry-run says.

usage: tools/scale.py growth MTZ FOLDER     pairs of VGG-16 for 64x64 images, of several widths and with several numbers of samples
       tools/scale.py full MTZ FOLDER       two VGG-16 for 224x224 images with 256 samples each, layer by layer; 3 GB in FOLDER

Weights and images are made up; all hidden layers are shared, nothing is retrained. Needs numpy and Linux. Nothing else should run.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading

import numpy as np

# Width and samples a task: one changes at a time.
GROWTH = [(0.125, 256), (0.25, 256), (0.5, 256), (0.25, 64), (0.25, 128), (0.25, 512)]


def images(path, side, count, classes, seed):
    """Blobs of several sizes: neighbouring pixels of photographs are alike."""
    if os.path.exists(path):
        return
    rng = np.random.default_rng(seed)
    x = np.zeros((count, 3, side, side), np.float32)
    for part in (32, 8, 2):
        coarse = rng.normal(size=(count, 3, side // part, side // part)).astype(np.float32)
        x += coarse.repeat(part, axis=2).repeat(part, axis=3)
    y = rng.integers(0, classes, count)
    y[-2:] = 0, classes - 1
    np.savez(path, x=np.clip(128 + 36 * x, 0, 255).astype(np.uint8), y=y)


def pair(mtz, side, width, count, classes, few):
    """Two networks, as good as those training begins with, and the command that zips them."""
    command = [mtz, "zip", "--retrain", "0", "--calibration", str(count), "-o", "joint.onnx", "--force", "--json"]
    for task in "ab":
        model, data, test = f"{task}-{side}-{width}.onnx", f"{task}-{side}-{count}.npz", f"{task}-{side}-test.npz"
        images(data, side, count, classes, ord(task) + 10)
        images(test, side, few, classes, ord(task))
        if not os.path.exists(model):
            call([mtz, "train", "vgg-16", "--width", str(width), "--data", test, "--epochs", "1", "--batch-size", "2",
                  "--lr", "1e-6", "--seed", str(ord(task)), "-o", model, "--json"])
        command += [f"{task}={model}", "--data", f"{task}={data}", "--test", f"{task}={test}"]
    return command


def call(arguments):
    """Runs mtz; its JSON, and the most memory that was resident."""
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(arguments)} ended with {status}")
    return json.loads(text), usage.ru_maxrss * 1024


def watched(arguments):
    """The same, with the most memory seen while each layer was worked on: the line of progress says which one it is."""
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=theirs, text=True)
    most, over = {}, threading.Event()

    def look():
        layer = 0
        while not over.is_set():
            if select.select([terminal], [], [], 0.2)[0]:
                said = re.findall(rb"layer (\d+) of", os.read(terminal, 1 << 16))
                layer = int(said[-1]) if said else layer
            resident = re.search(r"VmRSS:\s+(\d+) kB", open(f"/proc/{child.pid}/status").read())
            if resident:
                most[layer] = max(most.get(layer, 0), int(resident[1]) * 1024)

    watcher = threading.Thread(target=look)
    watcher.start()
    text = child.stdout.read()
    over.set()
    watcher.join()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(arguments)} ended with {status}")
    return json.loads(text), usage.ru_maxrss * 1024, most


def growth(mtz):
    print("| width | samples a task | parameters | seconds | memory, MiB | `--dry-run`: seconds | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    for width, count in GROWTH:
        command = pair(mtz, 64, width, count, 10, 20)
        said, _ = call([*command, "--dry-run"])
        real, memory = call(command)
        print(f"| {width} | {count} | {real['parameters']['before']} | {real['seconds']:.1f} | {memory / 2**20:.0f} "
              f"| {said['seconds']:.1f} | {said['peak_memory_bytes'] / 2**20:.0f} |", flush=True)


def full(mtz):
    command = pair(mtz, 224, 1.0, 256, 1000, 2)
    said, _ = call([*command, "--dry-run"])
    real, memory, most = watched(command)
    print("| layer | samples a task | seconds | `--dry-run`: seconds | memory, MiB | `--dry-run`: MiB |")
    print("|---|---|---|---|---|---|")
    for number, (layer, guess) in enumerate(zip(real["layers"], said["layers"]), 1):
        seen = f"{most[number] / 2**20:.0f}" if number in most else ""
        print(f"| {layer['name']} | {guess['samples']} | {layer['seconds']:.1f} | {guess['seconds']:.1f} | {seen} | {guess['memory_bytes'] / 2**20:.0f} |")
    print(f"in all {real['seconds']:.0f} s ({said['seconds']:.0f} said), {memory / 2**20:.0f} MiB ({said['peak_memory_bytes'] / 2**20:.0f} said), "
          f"parameters {real['parameters']['after']} ({said['parameters']['after']} said)")


def main():
    what, mtz, folder = {"growth": growth, "full": full}[sys.argv[1]], os.path.abspath(sys.argv[2]), sys.argv[3]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    what(mtz)


main()
