"""Which tests need what. Each has one of three markers, and `slow` beside it where it takes long.

`fast` needs only Python; `sandbox` starts a real sandbox, or namespaces; `host` needs docker, podman, runsc, chromium,
postgresql or qemu-user; `slow` is what `make test` leaves to `make test-all`, so that a commit waits less than five
minutes on two cores: engines, browsers, weights, package servers, many kills, and seconds of processor for something
that another test of `make test` would notice as well. Where a fixture says it, or the name of a parameter, nothing is
listed. A test that is listed as fast and starts a sandbox fails (tests/conftest.py).
"""

import re

import pytest

SLOW = (
    "tests/attack/test_attacks.py::test_root_of_a_sandbox_is_held_too",
    "tests/attack/test_attacks.py::test_without_a_sandbox_it_gets_through",
    "tests/attack/test_attacks_elsewhere.py",
    "tests/attack/test_attacks_with_tools.py",
    "tests/attack/test_egress.py",
    "tests/attack/test_terminal_attacks.py",
    "tests/cli/test_approve.py::test_permissions_are_listed_and_taken_back",
    "tests/cli/test_approve.py::test_what_is_always_allowed_holds_for_that_bot_in_that_folder",
    "tests/cli/test_bad_input.py::test_a_folder_that_was_moved_has_a_way_out",
    "tests/cli/test_built_in_tools.py",
    "tests/cli/test_chat.py::test_a_killed_chat",
    "tests/cli/test_clean.py",
    "tests/cli/test_code.py",
    "tests/cli/test_command_tools.py",
    "tests/cli/test_conflicts.py",
    "tests/cli/test_keeping.py",
    "tests/cli/test_mcp_servers.py",
    "tests/cli/test_model.py",
    "tests/cli/test_network.py",
    "tests/cli/test_plan.py",
    "tests/cli/test_plan_exits.py",
    "tests/cli/test_real_model.py",
    "tests/cli/test_record.py::test_a_run_on_record_in_postgresql",
    "tests/cli/test_record.py::test_a_secret_is_used_and_stands_nowhere",
    "tests/cli/test_redact.py",
    "tests/cli/test_remote.py",
    "tests/cli/test_removing.py",
    "tests/cli/test_resume.py::test_a_run_whose_layer_is_gone_goes_on_only_when_told_so",
    "tests/cli/test_resume.py::test_export_writes_each_form",
    "tests/cli/test_resume.py::test_rewind_is_another_run_with_the_files_of_that_turn",
    "tests/cli/test_searching.py",
    "tests/cli/test_shell.py::test_a_folder_of_yours_is_its_home_only_when_you_name_it",
    "tests/cli/test_shell.py::test_the_intro_is_there_hidden_and_can_be_shown",
    "tests/cli/test_terminal.py::test_a_first_ctrl_c_holds_the_run_and_enter_goes_on",
    "tests/cli/test_terminal.py::test_a_second_ctrl_c_stops_and_saves_and_a_third_quits",
    "tests/cli/test_terminal.py::test_a_word_reaches_the_bot_before_its_next_turn",
    "tests/cli/test_terminal.py::test_the_doctor_puts_below_each_other_what_has_no_room",
    "tests/cli/test_tool.py",
    "tests/cli/test_toolchain.py",
    "tests/cli/test_verdict.py::test_in_the_bots_own_shell_it_passes",
    "tests/cli/test_verdict.py::test_it_does_not_pass",
    "tests/cli/test_wire.py::test_of_a_browsing_bot_too",
    "tests/conformance/test_model.py::TestEmbedded",
    "tests/conformance/test_model_long_run.py",
    "tests/conformance/test_model_seed.py",
    "tests/conformance/test_network_clients.py",
    "tests/conformance/test_sandbox.py::test_all_of_it_as_an_ordinary_user",
    "tests/conformance/test_sandbox_alone.py",
    "tests/conformance/test_sandbox_docker.py",
    "tests/conformance/test_sandbox_gvisor.py",
    "tests/conformance/test_sandbox_podman.py",
    "tests/conformance/test_sandbox_remote.py",
    "tests/conformance/test_sandbox_runsc.py",
    "tests/conformance/test_sandbox_unconfined.py",
    "tests/conformance/test_toolbox_browser.py",
    "tests/conformance/test_toolbox_documents.py::test_all_of_it_as_an_ordinary_user",
    "tests/docs/test_plugin_example.py",
    "tests/faults/",
    "tests/integrations",
    "tests/trajectories/test_trajectories.py",
    "tests/trajectories/test_trajectories.py::test_forced_on_a_strong_model",
    "tests/unit/answers/test_lenient.py::test_proper_json_reads_as_json_does",
    "tests/unit/models/local/test_serve.py",
    "tests/unit/models/local/test_stock_program.py",
    "tests/unit/plugins/browser/test_pages.py",
    "tests/unit/plugins/coder/test_past.py",
    "tests/unit/sandboxes/test_building.py::test_an_ordinary_user_installs_as_well",
    "tests/unit/sandboxes/test_container_live.py",
    "tests/unit/sandboxes/test_folders/test_apply.py::test_cut_off_anywhere_and_applied_again",
    "tests/unit/sandboxes/test_folders/test_changes.py::test_ten_thousand_files",
    "tests/unit/sandboxes/test_folders/test_undo.py::test_cut_off_anywhere_and_completed_by_a_new_run",
    "tests/unit/sandboxes/test_gvisor_live.py",
    "tests/unit/sandboxes/test_quota.py",
    "tests/unit/sandboxes/test_root_inside.py",
    "tests/unit/sandboxes/test_shipped_programs.py::test_of_aarch64_too",
    "tests/unit/sandboxes/test_shipped_programs.py::test_the_agent_of_aarch64",
    "tests/unit/sandboxes/test_shipped_programs.py::test_the_launcher_of_aarch64",
    "tests/unit/sandboxes/test_toolchains.py::test_a_project_works",
    "tests/unit/sandboxes/test_tools_elsewhere.py",
    "tests/unit/sandboxes/test_watch.py",
    "tests/unit/tools/test_command/test_layers.py",
    "tests/unit/tools/test_command/test_shipped.py",
    "tests/unit/tools/test_mcp/test_hostile.py",
    "tests/unit/tools/test_memory/test_jail.py::test_a_killed_run_leaves_whole_files_and_no_lock",
    "tests/unit/tools/test_memory/test_jail.py::test_no_link_leads_out",
    "tests/unit/tools/test_memory/test_jail.py::test_two_runs_at_once_lose_nothing",
    "tests/unit/tools/test_reading/test_reader.py::test_bombs_hit_the_walls_of_their_place_and_nothing_else",
)
"""Beginnings of test ids, as the others."""

SANDBOX = (
    "tests/attack/",
    "tests/cli/",
    "tests/conformance/test_network_clients.py",
    "tests/conformance/test_programs.py",
    "tests/conformance/test_sandbox",
    "tests/conformance/test_toolbox",
    "tests/docs/test_examples.py",
    "tests/docs/test_plugin_example.py",
    "tests/docs/test_settings.py",
    "tests/docs/test_tools.py",
    "tests/faults/",
    "tests/tiny/test_collecting.py::test_what_needs_root",
    "tests/trajectories/",
    "tests/unit/api/",
    "tests/unit/loop/test_bot.py::test_a_second_sandbox",
    "tests/unit/mcp_server/test_server.py",
    "tests/unit/plugins/coder/test_hooks.py",
    "tests/unit/plugins/coder/test_loop.py",
    "tests/unit/plugins/planner/test_planning.py",
    "tests/unit/plugins/small_models/test_rules.py",
    "tests/unit/plugins/wasm/test_fetch.py",
    "tests/unit/plugins/wasm/test_grants.py",
    "tests/unit/plugins/wasm/test_hostile.py",
    "tests/unit/plugins/wasm/test_values.py",
    "tests/unit/plugins/wasm/test_worker.py",
    "tests/unit/runtime/test_web.py",
    "tests/unit/sandboxes/test_agent_procs.py",
    "tests/unit/sandboxes/test_api.py",
    "tests/unit/sandboxes/test_bubblewrap_killed.py",
    "tests/unit/sandboxes/test_bubblewrap_live.py",
    "tests/unit/sandboxes/test_building.py",
    "tests/unit/sandboxes/test_connections.py",
    "tests/unit/sandboxes/test_folders/",
    "tests/unit/sandboxes/test_forks.py",
    "tests/unit/sandboxes/test_forward.py",
    "tests/unit/sandboxes/test_kept.py",
    "tests/unit/sandboxes/test_launcher.py",
    "tests/unit/sandboxes/test_once.py",
    "tests/unit/sandboxes/test_probe_facts.py",
    "tests/unit/sandboxes/test_programs.py",
    "tests/unit/sandboxes/test_quota.py",
    "tests/unit/sandboxes/test_root_inside.py",
    "tests/unit/sandboxes/test_toolchains.py::test_what_is_written_to_a_cache_is_thrown_away",
    "tests/unit/sandboxes/test_seccomp.py::test_kernel_takes_the_filter",
    "tests/unit/sandboxes/test_session",
    "tests/unit/sandboxes/test_watch.py",
    "tests/unit/tools/test_command/",
    "tests/unit/tools/test_mcp/test_hostile.py",
    "tests/unit/tools/test_mcp/test_http.py",
    "tests/unit/tools/test_mcp/test_real_servers.py",
    "tests/unit/tools/test_mcp/test_toolbox.py",
    "tests/unit/tools/test_memory/test_commands.py",
    "tests/unit/tools/test_memory/test_jail.py",
    "tests/unit/tools/test_reading/",
    "tests/unit/tools/test_web/test_page.py",
    "tests/unit/tools/test_web/test_search.py",
)

HOST = (
    "tests/attack/test_attacks_elsewhere.py",
    "tests/cli/test_listings.py::test_the_doctor",
    "tests/cli/test_wire.py::test_of_a_browsing_bot_too",
    "tests/conformance/test_sandbox_docker.py",
    "tests/conformance/test_sandbox_gvisor.py",
    "tests/conformance/test_sandbox_podman.py",
    "tests/conformance/test_sandbox_runsc.py",
    "tests/conformance/test_toolbox_browser.py",
    "tests/unit/plugins/browser/test_pages.py",
    "tests/unit/sandboxes/test_container_live.py",
    "tests/unit/sandboxes/test_gvisor_live.py",
    "tests/unit/sandboxes/test_shipped_programs.py::test_the_agent_of_aarch64",
    "tests/unit/sandboxes/test_shipped_programs.py::test_the_launcher_of_aarch64",
    "tests/unit/sandboxes/test_tools_elsewhere.py",
)

ROOT = (
    "tests/conformance/test_programs.py::TestGVisor",
    "tests/unit/sandboxes/test_folders/test_apply.py",
    "tests/unit/sandboxes/test_folders/test_base.py",
    "tests/unit/sandboxes/test_folders/test_changes.py",
    "tests/unit/sandboxes/test_folders/test_diff.py",
    "tests/unit/sandboxes/test_folders/test_discard.py",
    "tests/unit/sandboxes/test_folders/test_flags.py::test_the_trick_through_another_symlink",
    "tests/unit/sandboxes/test_folders/test_flags.py::test_what_can_never_be_applied_is_refused",
    "tests/unit/sandboxes/test_folders/test_merging.py",
    "tests/unit/sandboxes/test_folders/test_prepare.py",
    "tests/unit/sandboxes/test_folders/test_snapshots.py",
    "tests/unit/sandboxes/test_folders/test_undo.py",
    "tests/unit/sandboxes/test_keeping.py::test_only_layers_of_their_own_are_kept_and_only_when_they_change",
    "tests/unit/sandboxes/test_launcher.py::test_devices_are_made_and_the_folder_is_sealed",
    "tests/unit/sandboxes/test_launcher.py::test_failures_are_one_line",
    "tests/unit/sandboxes/test_launcher.py::test_nothing_is_left_that_a_capability_could_be_had_by",
    "tests/unit/sandboxes/test_launcher.py::test_the_stage_becomes_the_root_and_nothing_else_is_mounted",
    "tests/unit/sandboxes/test_launcher.py::test_what_is_shown_is_a_copy_or_a_mount_that_cannot_be_written",
    "tests/unit/sandboxes/test_launcher.py::test_where_no_device_can_be_made_the_hosts_are_mounted",
    "tests/unit/sandboxes/test_probe_facts.py::test_root_of_a_user_namespace",
    "tests/unit/sandboxes/test_session_endings.py::test_a_fork_bomb_under_a_limit_of_processes",
)
"""Beside those with the marker: they lay layers out with mounts of root, or become other users."""

_FIXTURES = {"postgres": "host", "stage": "sandbox", "smollm2": "slow"}
_ENGINES = {"postgres", "docker", "podman", "gvisor", "runsc"}


def tiers(item: pytest.Item) -> set[str]:
    """The markers of a test. None of those of `model` and `toolchain`, which are tiers of their own."""
    if item.get_closest_marker("model") or item.get_closest_marker("toolchain"):
        return set()
    found = {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    found |= {name for name, places in _LISTED.items() if item.nodeid.startswith(places)}
    words = set(re.split(r"[^a-z]", item.nodeid.partition("[")[2]))
    if words & _ENGINES and ("sandbox" in found or "where" in getattr(item, "fixturenames", ())):
        found.add("host")
    if "host" in found:
        found.discard("sandbox")
    return found if found - {"root"} else found | {"fast"}


_LISTED = {"slow": SLOW, "host": HOST, "sandbox": SANDBOX, "root": ROOT}
