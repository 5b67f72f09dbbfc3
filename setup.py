"""Builds the packaged model into the wheel; everything else stands in pyproject.toml."""

import hashlib
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithModel(build_py):
    """Copies the modules, and writes the model's graph beside them; an editable installation gets it in `app/`."""

    def run(self) -> None:
        """Build."""
        super().run()
        folder = (ROOT / "app" if self.editable_mode else Path(self.build_lib)) / "openmemory" / "embeddings" / "data"
        sys.path.insert(0, str(ROOT / "tools"))
        from int8_graph import int8_graph, published_model

        graph = int8_graph(published_model())
        (folder / "model.onnx").write_bytes(graph)
        (folder / "model.onnx.sha256").write_text(hashlib.sha256(graph).hexdigest() + "\n")


setup(cmdclass={"build_py": BuildWithModel})
