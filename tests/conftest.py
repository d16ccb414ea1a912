"""Makes the helpers of this folder (models, walking, auditing) importable from every room's tests."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ["COLUMNS"] = "120"  # printed tables fit the terminal: the same one wherever the tests run
