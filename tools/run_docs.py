"""Runs what the documentation tells users to type: the README from PyTorch to onnxruntime (its `python` blocks in order, and the `mtz zip` between them),
and every `$ mtz` of docs/guide.md.

Usage: python tools/run_docs.py [path of mtz]     (needs torch, onnx, onnxscript, onnxruntime, numpy; versions in tools/golden/requirements.txt)
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "target/release/mtz").resolve()


def run(text):
    """Blocks of a page, in order, in an empty folder beside the project's data and models."""
    blocks = re.findall(r"```(python|console)\n(.*?)```", text, re.S)
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ["data", "models"]:
            pathlib.Path(name).symlink_to(root / name)
        names = {}
        for kind, block in blocks:
            if kind == "python":
                exec(compile(block, "documentation", "exec"), names)
                count += 1
                continue
            for line in block.splitlines():
                if line.startswith("$ mtz "):
                    print(line, flush=True)
                    subprocess.run([program, *line.split()[2:]], check=True)
                    count += 1
        os.chdir(root)
    return count


section = (root / "README.md").read_text().split("## Zip your own two models")[1].split("\n## ")[0]
assert run(section) >= 3, "the README has lost its example"
assert run((root / "docs/guide.md").read_text()) >= 8, "the guide has lost its commands"
print("the documentation works")
