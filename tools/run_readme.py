"""Runs what the README tells users to type, from PyTorch to onnxruntime: its `python` blocks in order, and the `mtz zip` between them.

Usage: python tools/run_readme.py [path of mtz]     (needs torch, onnx, onnxscript, onnxruntime, numpy; versions in tools/golden/requirements.txt)
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "target/release/mtz").resolve()
section = (root / "README.md").read_text().split("## Zip your own two models")[1].split("\n## ")[0]
blocks = re.findall(r"```(python|console)\n(.*?)```", section, re.S)
assert [kind for kind, _ in blocks].count("python") >= 2, "the README has lost its Python"

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("data").symlink_to(root / "data")
    names = {}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "README.md", "exec"), names)
            continue
        for line in text.splitlines():
            if line.startswith("$ mtz "):
                print(line)
                subprocess.run([program, *line.split()[2:]], check=True)
print("the README works")
