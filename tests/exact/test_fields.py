"""GF(q) and QQ, and which q are refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import GF, QQ, Field


def test_fields_obey_the_protocol():
    for field in (QQ, GF(2), GF(9)):
        assert isinstance(field, Field)
    assert (QQ.name, QQ.order) == ("QQ", None)
    assert (GF(7).name, GF(7).order) == ("GF(7)", 7)
    assert (GF(256).name, GF(256).order, repr(GF(256))) == ("GF(256)", 256, "GF(256)")


def test_fields_are_equal_by_size():
    assert GF(7) == GF(7) != GF(5)
    assert GF(8) == pickle.loads(pickle.dumps(GF(8)))
    assert GF(np.int64(8)) is GF(8)
    assert QQ == pickle.loads(pickle.dumps(QQ)) != GF(2)


@pytest.mark.parametrize("q", [0, 1, -7, 6, 100, 2**31, 2**61 - 1, 2**17, 257**2, 7.0, "7", True, None])
def test_refused_sizes(q):
    with pytest.raises(SpecificationError):
        GF(q)


@pytest.mark.parametrize("q", [2, 3, 2**31 - 1, 2**16, 251**2])
def test_largest_sizes(q):
    field = GF(q)
    rows = field.exact_rows([[1, q - 1], [0, 1]])
    assert field.echelon(rows).rows.tolist() == [[1, 0], [0, 1]]
