"""Private parameters from tables: data frames, lazy engines, databases and files."""

from dpmodel.marks.dataset.dataset import Dataset

__all__ = ["Dataset"]
