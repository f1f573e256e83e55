#!/usr/bin/env bash
# Two VGG-16 for 224×224 images with made-up weights, zipped with all hidden layers shared: time and memory at full size.
# usage: tools/full_size_vgg.sh FOLDER [options of mtz zip]     needs python3 with numpy, 3 GB in FOLDER, and GNU time
set -euo pipefail
mtz="$(cd "$(dirname "$0")/.." && pwd)/target/release/mtz"
folder=$1
shift
mkdir -p "$folder"
cd "$folder"
for task in a b; do
    [ -e "$task.npz" ] || python3 - "$task" <<'PY'
import sys
import numpy as np

# Blobs of several sizes rather than white noise: neighbouring pixels of photographs are alike, and so are the sums over them.
name = sys.argv[1]
rng = np.random.default_rng(ord(name))
images = np.zeros((256, 3, 224, 224), np.float32)
for size in (7, 28, 112):
    coarse = rng.normal(size=(256, 3, size, size)).astype(np.float32)
    images += coarse.repeat(224 // size, axis=2).repeat(224 // size, axis=3)
images = np.clip(128 + 36 * images, 0, 255).astype(np.uint8)
labels = rng.integers(0, 1000, 256)
labels[:2] = 0, 999
np.savez(f"{name}.npz", x=images, y=labels)
np.savez(f"{name}-two.npz", x=images[:2], y=labels[:2])
PY
    # Two steps on one image each: as good as the weights training begins with.
    [ -e "$task.onnx" ] || "$mtz" train vgg-16 --data "$task-two.npz" --epochs 1 --batch-size 1 --lr 1e-6 --seed "$(printf %d "'$task")" -o "$task.onnx"
done
exec /usr/bin/time -v "$mtz" zip a=a.onnx b=b.onnx --data a=a.npz --data b=b.npz --test a=a-two.npz --test b=b-two.npz --calibration 256 --retrain 0 -o joint.onnx --force "$@"
