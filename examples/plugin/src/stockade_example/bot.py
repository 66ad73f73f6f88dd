"""A bot: a role, a permission, tools, and here a way of its own to run: it counts twice, and both must be the same."""

from stockade.extend import Bot, BotSpec, Ending, RunContext


class CountsTwice(Bot):
    """Runs the loop two times, in one conversation, on one budget."""

    async def run(self, ctx: RunContext) -> Ending:
        first = await ctx.loop()
        if first.status != "done":
            return first
        await ctx.say("Count once more, from the start, and finish with the number.", "counter")
        second = await ctx.loop()
        if second.status == "done" and second.answer != first.answer:
            return Ending("stopped", "gave_up", f"counted {first.answer}, then {second.answer}")
        return second


COUNTER = BotSpec(
    name="counter",
    summary="counts things in a folder that it cannot change, twice",
    prompt=(
        "You count things in the user's files in {workdir}, your current folder, with a bash shell on Linux. There is"
        " {network} and {nobody}. When you have the number, finish with it and nothing else."
    ),
    tools=("shell", "count_words", "finish"),
    folder_mode="ro",
    bot=CountsTwice(),
)
