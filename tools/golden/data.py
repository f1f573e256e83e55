"""Small data files as other programs write them: python data.py writes crates/mtz/tests/golden/data."""

import gzip
import pathlib
import struct

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates/mtz/tests/golden/data"
rng = np.random.default_rng(0)
pixels = lambda *shape: rng.integers(0, 256, shape, np.uint8)


def folder(name):
    path = OUT / name
    path.mkdir(parents=True, exist_ok=True)
    return path


x, y = pixels(7, 3, 4, 5), rng.integers(0, 4, 7)
folder("")
np.savez(OUT / "plain.npz", x=x, y=y)
np.savez_compressed(OUT / "compressed.npz", x=x, y=y.astype(np.uint8))
np.savez(OUT / "floats.npz", x=(x / 255).astype(np.float32), y=y.astype(np.int32))
np.savez(OUT / "doubles.npz", x=x / 255, y=y)
np.savez(OUT / "halves.npz", x=(x / 255).astype(np.float16), y=y)
np.savez(OUT / "features.npz", x=pixels(7, 60), y=y)
np.savez(OUT / "attributes.npz", x=x, y=rng.integers(0, 2, (7, 4)).astype(np.uint8))
np.savez(OUT / "boolean.npz", x=x, y=rng.integers(0, 2, (7, 4)).astype(bool))
np.savez(OUT / "several.npz", x=x, age=y, gender=y % 2)
np.savez(OUT / "unlabelled.npz", x=x)
np.savez(OUT / "fortran.npz", x=np.asfortranarray(x), y=y)
np.savez(OUT / "big_endian.npz", x=x.astype(">f4"), y=y)
np.savez(OUT / "objects.npz", x=np.array([{}, {}]), y=y[:2])
np.savez(OUT / "mismatch.npz", x=x, y=y[:5])
np.savez(OUT / "negative.npz", x=x, y=y - 3)
np.savez(OUT / "float_labels.npz", x=x, y=y + 0.5)
np.savez(OUT / "no_x.npz", images=x, labels=y)


def idx(path, array, zipped):
    data = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data, mtime=0) if zipped else data)


for name, zipped in (("idx", False), ("idx_gz", True)):
    end = ".gz" if zipped else ""
    for part, count in (("train", 5), ("t10k", 3)):
        idx(folder(name) / f"{part}-images-idx3-ubyte{end}", np.arange(count * 20).reshape(count, 4, 5), zipped)
        idx(folder(name) / f"{part}-labels-idx1-ubyte{end}", np.arange(count), zipped)

for i in (1, 2):
    (folder("cifar") / f"data_batch_{i}.bin").write_bytes(b"".join(bytes([i]) + bytes([10 * i + k]) * 3072 for k in range(2)))
(folder("cifar") / "test_batch.bin").write_bytes(bytes([9]) + bytes(range(256)) * 12)
(folder("cifar100") / "train.bin").write_bytes(bytes([1, 55]) + bytes(3072))
(folder("cifar100") / "test.bin").write_bytes(bytes([2, 77]) + bytes([5]) * 3072)

for part, count in (("train", 2), ("test", 1)):
    for kind in ("cat", "dog"):
        for k in range(count):
            picture = np.zeros((4, 5, 3), np.uint8)
            picture[..., 0], picture[..., 1], picture[..., 2] = (200 if kind == "dog" else 10), np.arange(5) * 10, k
            Image.fromarray(picture).save(folder(f"images/{part}/{kind}") / f"{k}.png")
Image.fromarray(pixels(8, 10, 3)).save(folder("large_images/a") / "big.png")

np.save(OUT / "bare.npy", x)
np.save(OUT / "fortran.npy", np.asfortranarray((x / 255).astype(np.float32)))
np.savez_compressed(OUT / "fortran_compressed.npz", x=np.asfortranarray(x), y=y)
np.savez(OUT / "fortran_attributes.npz", x=x, y=np.asfortranarray(np.arange(28).reshape(7, 4) % 3 == 0))
np.savez(OUT / "channels_last.npz", x=np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y=y)
np.savez(OUT / "floats_255.npz", x=x.astype(np.float32), y=y)
np.savez(OUT / "nan.npz", x=np.where(np.arange(420).reshape(x.shape) == 200, np.nan, x / 255).astype(np.float32), y=y)
np.savez(OUT / "names.npz", x=x, y=np.array(["emu", "cat", "dog", "cat", "dog", "ox", "cat"]))
np.savez(OUT / "names_bytes.npz", x=x, y=np.array([b"emu", b"cat", b"dog", b"cat", b"dog", b"ox", b"cat"]))
np.savez(OUT / "one_hot.npz", x=x, y=np.eye(4, dtype=np.float32)[[3, 0, 1, 1, 2, 0, 3]])
np.savez(OUT / "from_one.npz", x=x, y=np.array([1, 2, 3, 4, 4, 2, 1]))
np.savez(OUT / "ages.npz", x=x, age=np.array([23.5, 40, 31, 7.25, 66, 18, 90]))
np.savez(OUT / "same.npz", x=np.full((70, 3, 4, 5), 9, np.uint8), y=np.arange(70) % 4)
for part, count in (("train", 3), ("test", 2)):
    for k in range(count):
        Image.fromarray(np.full((4, 5, 3), 10 * k + count, np.uint8)).save(folder(f"photographs/{part}") / f"{k}.png")
print(sum(1 for p in OUT.rglob("*") if p.is_file()), "files")
