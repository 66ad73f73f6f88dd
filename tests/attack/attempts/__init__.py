"""Every attempt, by area. The tables know no backend: each is tried against all of them."""

from collections.abc import Mapping

from tests.attack.attempts.attempt import Attempt
from tests.attack.attempts.environment import ENVIRONMENT
from tests.attack.attempts.files import FILES
from tests.attack.attempts.kernel import KERNEL
from tests.attack.attempts.later import LATER
from tests.attack.attempts.network import NETWORK
from tests.attack.attempts.processes import PROCESSES
from tests.attack.attempts.resources import RESOURCES

AREAS: Mapping[str, tuple[Attempt, ...]] = {
    "files of the host": FILES,
    "processes": PROCESSES,
    "kernel": KERNEL,
    "network": NETWORK,
    "environment": ENVIRONMENT,
    "resources": RESOURCES,
    "left for the host": LATER,
}
