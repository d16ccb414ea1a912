"""The independent neighbour sampler lives with the tests of compile/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "compile"))
