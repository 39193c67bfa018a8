"""Sphinx configuration.

pip install -r docs/requirements.txt && sphinx-build -W -n docs docs/_build
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parent / "exercises"))
sys.path.insert(2, str(Path(__file__).parents[1] / "benchmark"))
import generate

project = "Phasic Policy Gradient"
author = "the authors of ppg_procgen.py and ppo_procgen.py"
copyright = "the authors, MIT licence"
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_exercise",
    "sphinx-mathjax-offline",  # formulas without a request to another server
]
myst_enable_extensions = ["attrs_block", "colon_fence", "dollarmath", "substitution"]
myst_heading_anchors = 3
# [ppg.py 148](code:ppg.py#L148) and [ppg_procgen.py 200](cleanrl:ppg_procgen.py#L200)
myst_url_schemes = {
    "https": None,
    "code": "https://github.com/openai/phasic-policy-gradient/blob/"
    "7295473f0185c82f9eb9c1e17a373135edd8aacc/phasic_policy_gradient/{{path}}#{{fragment}}",
    "cleanrl": "https://github.com/vwxyzjn/cleanrl/blob/"
    "35896b1fefa9898b904f7e09bcbe6e168e15d2a9/cleanrl/{{path}}#{{fragment}}",
}
exclude_patterns = ["_build", "exercises"]
html_static_path = ["static"]
html_favicon = "static/icon.svg"
html_css_files = ["pages.css"]
html_theme = "furo"
html_title = "PPG on Procgen"
html_show_sphinx = False
smartquotes = False  # flags keep their two hyphens
pygments_style = "friendly"
myst_substitutions = generate.substitutions()
generate.write_all(Path(__file__).parent / "_generated")
