"""Who is protected: the table of records from which private parameters were computed."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dpmodel.errors import SpecificationError

if TYPE_CHECKING:
    from dpmodel.marks.private import Private

Neighbors = Literal["replace-one", "add-remove"]
NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")


class Records:
    """The records (people) behind one or more private parameters.

    Parameters of the same ``Records`` change together when one record changes: with unit ``"row"`` or
    ``"entry"`` and the same number of units, record i owns row i of one and entry i of the other.
    Parameters whose units cannot be paired by number (different counts, entries of a matrix, or two
    vectors that were given no ``records=``) may be hit in any pair of units, and their changes are added.
    Parameters of different ``Records`` belong to different people: one record moves only one of them. Then each of them
    needs a name of its own, so that nobody is taken for two by an oversight: a problem in which one parameter names its
    records and another does not, or two ``Records`` share a name, is refused. What names none (parameters, data sets,
    tables of ``query_release``) belongs to the same people.

    Under ``"replace-one"`` a record stays the owner of its unit and only the values change: *which* unit is
    whose is public. If people can move between entries of a table of counts, that moves two entries:
    declare ``unit="all", l1=2, linf=1``, or count under ``"add-remove"``, where one person is in one entry.

    Parameters
    ----------
    name : shown in messages and in the guarantee; needed in a problem of several ``Records``.
    neighbors : ``"replace-one"`` (one record's values are replaced; shapes are public) or
        ``"add-remove"`` (one record's units may be absent, i.e. zero; the shape is a public capacity).

    Raises
    ------
    SpecificationError
        For an unknown neighbor relation, and a name that is no text.
    """

    __slots__ = ("__weakref__", "_name", "_neighbors", "_people", "_token")

    def __init__(self, name: str | None = None, neighbors: Neighbors = "replace-one") -> None:
        if neighbors not in NEIGHBORS:
            raise SpecificationError(
                f"Records(neighbors={neighbors!r})",
                why="the neighbor relation decides what one record may change",
                remedy="neighbors='replace-one' or neighbors='add-remove'",
            )
        if name is not None and not (isinstance(name, str) and name):
            raise SpecificationError(f"Records(name=<{type(name).__name__}>)", remedy="Records('people')")
        self._name = name
        self._neighbors: Neighbors = neighbors
        self._people: Records = self
        self._token = uuid.uuid4().hex
        _known[self._token] = self

    @classmethod
    def of_table(cls, name: str | None, neighbors: Neighbors, people: Records | None) -> Records:
        """The records of one table, whose rows are numbered for themselves: they are people of ``people`` (None: those
        of everything of which nobody said whose it is), who may be in other tables too."""
        records = cls(name, neighbors)
        records._people = DEFAULT_RECORDS if people is None else people.people
        return records

    @property
    def people(self) -> Records:
        """Whose records these are. Parameters of the same people change together; only those of the same ``Records``
        are paired by number."""
        return self._people

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def neighbors(self) -> Neighbors:
        return self._neighbors

    def __repr__(self) -> str:
        said = [repr(self._name)] * (self._name is not None)
        return f"Records({', '.join([*said, f'neighbors={self._neighbors!r}'])})"

    def __deepcopy__(self, memo: dict[int, object]) -> Records:
        # Identity says whose data it is: a copy would turn the same people into different people.
        return self

    def __copy__(self) -> Records:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        if self is DEFAULT_RECORDS:
            return (_default_records, ())
        # Parameters pickled one by one must come back as the data of the same people.
        people = None if self._people is self else self._people
        return (_restored, (self._token, self._name, self._neighbors, people))


_known: weakref.WeakValueDictionary[str, Records] = weakref.WeakValueDictionary()


def _restored(token: str, name: str | None, neighbors: Neighbors, people: Records | None) -> Records:
    """The Records of this identity: the one that lives here already, or a new one."""
    found = _known.get(token)
    if found is None:
        found = Records(name, neighbors)
        _known.pop(found._token, None)
        found._token = token
        found._people = found if people is None else people
        _known[token] = found
    return found


def _default_records() -> Records:
    return DEFAULT_RECORDS


# The people of everything of which nobody said whose it is, in the whole package.
DEFAULT_RECORDS = Records()


def refuse_unnamed(parameters: Iterable[Any]) -> None:
    """Refuse private parameters of several people of whom not each has a name of its own.

    A record moves the parameters of one people only, so two that are the same people by an oversight would each be
    protected as if the other did not exist.
    Errors: SpecificationError, which says how to tell them apart and how to join them.
    """
    people: dict[Records, str] = {}
    for parameter in parameters:
        people.setdefault(parameter.records.people, parameter.name())
    known: dict[str | None, str] = {}
    for records, parameter in people.items():
        if len(people) > 1 and (records.name is None or records.name in known):
            other, others = next((each, name) for each, name in people.items() if each is not records)
            one, two = (f"Records({r.name!r})" if r.name else "no Records of a name" for r in (other, records))
            raise SpecificationError(
                f"{others} is of {one}, {parameter} of {'another ' * (one == two)}{two}: are these the same people?",
                why="one person moves all that is computed from the same people's records, and nothing of others'",
                remedy="people = Records('people') and records=people for both if they are; "
                "records=Records('a') for one and records=Records('b') for the other if no person is in both",
            )
        known[records.name] = parameter


# Texts name no more parameters than this at once, and tables show no more rows of one kind.
_MOST_NAMES = 5


def public_count(parameters: Iterable[Private]) -> int:
    """The number of records where it is public (records are replaced, and each owns a unit or is counted once), else 0;
    the least of several."""
    ours = [each for each in parameters if each.records.neighbors == "replace-one"]
    owned = [each.layout.unit_count for each in ours if each.size > 1 and each.unit != "all"]
    counted = [int(each.total) for each in ours if each.total is not None]
    return min([*owned, *counted], default=0)


def record_words(parameters: Iterable[Private]) -> str:
    """Whose records are protected, and what one of them has in every parameter, for guarantees.

    One record has all that is said of its people; records of other people, if there are any, come after "or".
    """
    people: dict[Records, list[Private]] = {}
    for parameter in dict.fromkeys(parameters):
        people.setdefault(parameter.records.people, []).append(parameter)
    return "; or ".join(f"a record{_whose(records, owned)} {_owns(owned)}" for records, owned in people.items())


def _whose(people: Records, owned: Sequence[Private]) -> str:
    """Of the people's name, or of that of the only table."""
    tables = {parameter.records.name for parameter in owned}
    name = people.name or (tables.pop() if len(tables) == 1 else None)
    return f" of {name}" if name else ""


def _owns(owned: Sequence[Private]) -> str:
    owns: dict[bool, dict[str, list[str]]] = {}
    moves: dict[str, list[str]] = {}
    for parameter in owned:
        name = str(parameter.name())
        if parameter.size == 1 or parameter.unit == "all":
            moves.setdefault("moves" if parameter.size == 1 else "may move every entry of", []).append(name)
        else:  # which unit is whose is public where records are replaced
            stays = parameter.records.neighbors == "replace-one"
            owns.setdefault(stays, {}).setdefault(f"one {parameter.unit} of", []).append(name)
    said = [
        f"owns {' and '.join(f'{what} {listed(names)}' for what, names in units.items())}"
        + " (which one is public)" * stays
        for stays, units in owns.items()
    ]
    return " and ".join(said + [f"{how} {listed(names)}" for how, names in sorted(moves.items())])


def listed(names: list[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
