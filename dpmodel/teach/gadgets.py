"""Impossibility made tangible: programs whose solution is the database (HRRU14, section 5), and the attack on them.

``scalar``, ``objective`` and ``column`` build the programs of Theorems 36, 37 and 38 from bits; ``reconstruct``
reads the bits off any solution; ``demonstrate`` sets the plain solver beside private mechanisms and the lower bound
that the theorem leaves to them; ``figure`` draws that lower bound against epsilon.

    >>> import dpmodel as dpm
    >>> gadget = dpm.teach.gadgets.objective([0, 1, 1, 0])
    >>> dpm.teach.gadgets.reconstruct(gadget, gadget.solve_without_privacy()).bits.tolist()
    [0, 1, 1, 0]
"""

from dpmodel.teach.demonstration import Demonstration, Row, demonstrate
from dpmodel.teach.lower_bound_figure import LowerBoundTable, figure, lower_bounds
from dpmodel.teach.lower_bounds import Gadget, build, column, objective, scalar
from dpmodel.teach.reconstruction import Reconstruction, randomised_response, reconstruct

__all__ = [
    "Demonstration",
    "Gadget",
    "LowerBoundTable",
    "Reconstruction",
    "Row",
    "build",
    "column",
    "demonstrate",
    "figure",
    "lower_bounds",
    "objective",
    "randomised_response",
    "reconstruct",
    "scalar",
]
