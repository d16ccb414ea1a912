"""How Sphinx builds this site: ``python -m sphinx -W --keep-going -n -b html docs build/site``.

Nothing is downloaded, neither while it is built nor while it is read: no scripts, styles, fonts, inventories of others.
"""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ["COLUMNS"] = "88"  # what lessons print fits the width of a page

project = "dpmodel"
author = "The dpmodel authors"
copyright = author
release = version = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = ["lessons", "mathml", "docstrings", "offline", "accessible", "myst_nb"]
exclude_patterns = ["_extensions", "_static", "**/.ipynb_checkpoints"]
root_doc = "index"

# Pages: Markdown with formulas between dollars. Lessons are executed, whatever they held, and an error ends the build.
myst_enable_extensions = ["dollarmath", "deflist", "attrs_inline"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 900
nb_merge_streams = True
nb_ipywidgets_js = {}  # the default loads scripts from the net

# The reference: what docstrings say.
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    # What scikit-learn puts on every estimator.
    "exclude-members": "set_fit_request, set_predict_request, set_score_request, set_transform_request",
}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
# Types of others, whose inventories would have to be downloaded, and aliases of such.
_OTHERS = r"(collections|cvxpy|fractions|numpy|os|pathlib|scipy|sklearn)\..*"
_ALIASES = "Averaging|Code|FloatArray|Floats|Fraction|Integers|NDArray|Neighbors|Order"
# Types in the signatures of results, which nobody makes by hand.
_INSIDE = (
    r"(.*\.)?(Ball|Basis|Charges|Constants|Fit|Forecaster|Form|HiddenShares|Limits|M|Postprocessing|PrivacyLoss|Schedule|Setting|System|"
    r"Tables|Tree|MarginalNoise|TreeOfSums|_Last|Mapping\[str|tuple\[(str|float|Measured \| Moments))"
)
nitpick_ignore_regex = [("py:.*", f"{_OTHERS}|{_ALIASES}|{_INSIDE}")]

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"dpmodel {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a page that is opened as a file may not read others
