"""Sphinx configuration.

pip install -r docs/requirements.txt && sphinx-build -W -n docs docs/_build
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "benchmark"))
import generate

project = "Phasic Policy Gradient"
author = "the authors of ppg_procgen.py and ppo_procgen.py"
copyright = "MIT licence"
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",  # formulas without a request to another server
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "PPG on Procgen"
html_show_sphinx = False
pygments_style = "friendly"
myst_substitutions = generate.substitutions()
generate.write_all(Path(__file__).parent / "_generated")
