"""What the user marks: which parameters are private, and how far one record can move them."""

from dpmodel.marks.private import Private
from dpmodel.marks.records import DEFAULT_RECORDS, Records

__all__ = ["DEFAULT_RECORDS", "Private", "Records"]
