"""What tests of bad input and of failures share: a secret, problems around it, and a search for its digits."""

from __future__ import annotations

import re
import traceback

import cvxpy as cp
import numpy as np

import dpmodel as dpm

SECRET = np.array([7321.4375, -5128.8125])
DIGITS = re.compile("7321|5128|4375|8125")


def private(value=SECRET, **declared):
    return dpm.Private(value, name="b", **declared or {"unit": "entry", "linf": 1})


def scalar_problem(x=None, parameter=None):
    x = cp.Variable(2, name="x") if x is None else x
    parameter = private() if parameter is None else parameter
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= parameter).set_label("need")])


def chain_of(error):
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def assert_clean(error):
    """No private digit in the error, what it is chained to, or the locals of the frames it would carry."""
    for link in chain_of(error):
        assert not DIGITS.search(str(link)), type(link)
        assert not DIGITS.search(repr(link.__dict__)), type(link)
        assert not DIGITS.search("".join(traceback.format_exception_only(link)))
