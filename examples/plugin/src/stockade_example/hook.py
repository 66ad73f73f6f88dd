"""A hook: lock files are for package managers to write."""

from stockade.extend import Action, EditFile, Hook, HookContext, Refuse, WriteFile


class NoLockFiles(Hook):
    """Refuses `write_file` and `edit_file` of what ends in `.lock`."""

    name = "no_lock_files"

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | None:
        if isinstance(action, WriteFile | EditFile) and action.path.endswith(".lock"):
            return Refuse(f"{action.path} is a lock file: change what it is made from", rule="lock")
        return None
