"""What leaves the private world: plain data, and how it is shown."""

from dpmodel.release.release import Accuracy, Guarantee, Release

__all__ = ["Accuracy", "Guarantee", "Release"]
