"""Limits how many files and sockets this process may have open."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger(__name__)

_OTHERS = 256
"""Descriptors for everything except clients: the index, both pools of PostgreSQL, providers, the log."""
_MIN_DESCRIPTORS = 64


def room_for(connections: int) -> int:
    """Raises the limit of the process as far as possible and returns how many of the connections then fit.

    Without a free descriptor, connections could not even be refused, and the stores could not open their files.
    """
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = connections + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < target:
        raised = target if hard == resource.RLIM_INFINITY else min(target, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (ValueError, OSError) as error:  # macOS has a lower limit than it reports
            log.debug("the limit of open files stays at %d: %s", soft, error)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return connections
    fit = max(_MIN_DESCRIPTORS, soft - _OTHERS)
    log.warning(
        "limits.connections is %d, but this process may open %d files, which is enough for %d; raise `ulimit -n`",
        connections, soft, fit,
    )  # fmt: skip
    return fit
