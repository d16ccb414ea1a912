"""Integer programs with equalities hidden in inequalities: solve, sanitise what is tight, go down a dimension, repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpmodel._text import number
from dpmodel.annotate.records import Neighbors
from dpmodel.errors import InfeasibleError
from dpmodel.mechanisms.linalg.dp_lp_descent import Schedule, descend, reduced_rows, scaled_rows
from dpmodel.mechanisms.linalg.dp_lp_forecast import simulated_misses
from dpmodel.mechanisms.linalg.dp_lp_published import Published, published
from dpmodel.mechanisms.linalg.dp_lp_spans import supported_levels, threshold
from dpmodel.mechanisms.linalg.integer_flat import Floats, FractionRows, Region, fractions, nearest, region_of
from dpmodel.mechanisms.linalg.integer_rows import Fractions, IntegerRows, primitive, satisfied, slack_rows
from dpmodel.mechanisms.linalg.protocol import Found
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.mechanism import YES, Forecast, Progress, Request, Verdict, no_progress, says_nothing
from dpmodel.privacy import Cost, NoiseSource, exponential_mechanism, zcdp_rho
