"""What a backend cannot do here, and why: the one place. Each is an expected failure; one that passes fails the suite.

LETHAL ones are not run at all: they would end whoever runs the tests.
"""

from typing import NamedTuple

LETHAL = True


class Limit(NamedTuple):
    """`test` without its parameters."""

    backend: str
    test: str
    reason: str
    lethal: bool = False


_ON_THE_HOST = "it runs on the host: nothing is held, and `guarantees` says so"

KNOWN_LIMITS = (
    *(
        Limit(
            backend,
            "test_a_memory_hog_is_bounded",
            "gVisor does not hold RLIMIT_DATA: the memory limit ends the whole sandbox, by name, and the host is safe",
        )
        for backend in ("gvisor", "docker with runsc", "podman with runsc")
    ),
    *(
        Limit("unconfined", test, "--net is refused: the host's network cannot be limited")
        for test in (
            "test_a_name_on_the_list_and_no_other",
            "test_a_service_of_the_host_is_reached_by_its_one_name",
            "test_programs_that_know_of_no_proxy_reach_what_is_allowed_and_learn_at_once_what_is_not",
            "test_the_proxy_is_the_only_way_out",
            "test_transfers_beside_each_other_and_beside_commands",
            "test_a_death_amid_a_transfer_leaves_nothing",
        )
    ),
    Limit(
        "rootless podman",
        "test_sockets_and_pipes_of_the_host_lead_nowhere",
        "without root an ro folder is a bind mount, which does not keep connect() from a socket in it: SECURITY.md",
    ),
    Limit(
        "remote", "test_a_service_of_the_host_is_reached_by_its_one_name", "open there names no service of that machine"
    ),
    Limit(
        "remote",
        "test_further_shells_have_a_state_of_their_own_and_work_at_once",
        "one persistent shell: further ones are no part of /v1/sandboxes",
    ),
    Limit("unconfined", "test_no_network", _ON_THE_HOST),
    Limit("unconfined", "test_an_ordinary_user_without_rights", _ON_THE_HOST),
    Limit("unconfined", "test_scratch_is_bounded_in_total", _ON_THE_HOST),
    Limit("unconfined", "test_two_at_once_do_not_see_each_other", _ON_THE_HOST),
    Limit("unconfined", "test_read_only_is_read_only", _ON_THE_HOST),
    Limit("unconfined", "test_sockets_and_pipes_of_the_host_lead_nowhere", _ON_THE_HOST),
    Limit(
        "unconfined", "test_python_has_its_short_name", "it runs on the host, whose programs have the names they have"
    ),
    Limit("unconfined", "test_several_folders_and_copies", "folders have no other place on the host: refused"),
    Limit("unconfined", "test_process_one_cannot_be_killed_from_inside", _ON_THE_HOST, LETHAL),
    Limit("unconfined", "test_a_fork_bomb_is_bounded", _ON_THE_HOST, LETHAL),
)


def known_limit(backend: str, test: str) -> Limit | None:
    """None when the test has to pass on this backend."""
    return next((limit for limit in KNOWN_LIMITS if (limit.backend, limit.test) == (backend, test)), None)
