"""A property that is worked out once for each object, without a lock.

`functools.cached_property` of Python before 3.12 holds one lock for all objects of a class while it works a value out.
What such a property asks of a workspace waits for the workspace's own lock, and a thread that holds that one may be
waiting for the property: both for ever. Here two threads may at worst work out the same value twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """`@lazy` on a method of one argument; the value is kept in the object's `__dict__` under the method's name."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> lazy[T] | T:
        if instance is None:
            return self
        value = self._make(instance)
        return instance.__dict__.setdefault(self._name, value)
