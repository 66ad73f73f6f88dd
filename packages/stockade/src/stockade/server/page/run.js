// One run: its steps as they come, what it asks, what it may do, what it changed.
import { button, el, events, form, get, head, list, many, named, outcome, plain, post, put, say, size, status, time } from "./common.js";
import { files } from "./files.js";
import { diffTable, review } from "./review.js";
import { windowed } from "./windowed.js";

const FOLD = 20;
export const here = { goTo() {} };  // the step of that id, or of the event e<number>, of the run on the screen

export async function watch(main, id, mine, signal, step) {
  const path = `/v1/runs/${encodeURIComponent(id)}`, may = (scope) => mine.scopes.includes(scope) || mine.scopes.includes("admin");
  const run = await get(path, signal);
  const steps = el("section", { data: { "aria-label": "Steps" } }), asked = el("div", { className: "asked", data: { "aria-live": "assertive" } });
  const facts = el("div"), changed = el("div"), bar = el("div", { className: "bar" }), state = el("span");
  const outline = el("nav", { className: "turns", data: { "aria-label": "Turns" } }), all = [];
  const list = windowed(steps, drawn), turns = windowed(outline, turn, { name: "ol", guess: 24 });
  const toEnd = () => { if (all.length) list.show(all.at(-1)); scrollTo(0, document.body.scrollHeight); };
  const follow = button("Newest step ↓", toEnd, { hidden: true });
  const words = el("textarea", { rows: 2 });
  const send = form("Send", async () => {
    const { as } = await (await post(`${path}/messages`, { text: words.value })).json();
    words.value = "";
    status.textContent = { steer: "The bot is told before its next turn.", task: "The run goes on with that.", answer: "Answered." }[as];
    if (as === "task") location.reload();
  }, el("label", {}, "Tell the bot (or, when it is over, what to do next) ", words));
  main.replaceChildren(
    el("h1", { textContent: run.task.slice(0, 300) }), el("div", { className: "bar" }, state, bar),
    el("div", { className: "columns" },
      el("details", { className: "outline", open: matchMedia("(min-width: 80rem)").matches }, el("summary", { textContent: "Turns" }), outline),
      el("div", {}, finder(all, list), steps, follow, asked, may("run") && send), el("aside", {}, changed, files(path, signal), facts)));
  const view = { path, may, steps, asked, facts, changed, bar, state, run, usage: { tokens: 0, cost: 0, turns: 0 }, network: [], turn: 0, next: "", took: 0, current: null, cards: new Map() };
  here.goTo = (step) => {
    const found = all.findLast((item) => item.id <= Number(step.slice(1)));
    if (found) list.show(found).focus();
  };

  const atEnd = () => innerHeight + scrollY > document.body.scrollHeight - 160;
  addEventListener("scroll", () => { follow.hidden = atEnd(); }, { signal, passive: true });

  const refresh = async () => {
    Object.assign(view.run, await get(path, signal));
    controls(view);
    await questions(view, signal);
  };
  if (["running", "asking", "paused"].includes(run.status)) {
    const look = button("Show the changes so far", async () => { await review({ ...view, may: () => false, changed: sofar }, signal); look.textContent = "Look again"; });
    const sofar = el("div");
    changed.append(sofar, look);
  }
  const timer = setInterval(() => refresh().catch(say), 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  await refresh();
  const broken = (is) => { status.textContent = is ? "The connection broke; it is tried again." : ""; };
  let first = true, queue = [], late;
  const flush = () => {  // seldom: each one lays the page out
    clearTimeout(late);
    late = undefined;
    const stay = !first && atEnd(), batch = queue;
    first = false;
    queue = [];
    for (const event of batch) {
      const item = shownAs(view, event);
      if (!item) continue;
      all.push(item);
      list.add(item);
      if (event.turn > view.turn) {
        view.turn = event.turn;
        turns.add({ path, may, turn: event.turn, took: view.took, next: view.next, id: item.id });
      }
    }
    summary(view);
    if (stay) toEnd();
  };
  signal.addEventListener("abort", () => clearTimeout(late));
  for await (const batch of events(`${path}/events`, signal, -1, broken)) {
    queue.push(...batch);
    late ??= setTimeout(flush, 100);
  }
  if (signal.aborted) return;
  flush();
  clearInterval(timer);
  Object.assign(view.run, await get(path, signal));
  controls(view);
  await questions(view, signal);
  outline.classList.add("over");
  await review(view, signal);
  if (step) here.goTo(step);
}

function controls({ path, may, bar, state, run }) {
  Object.assign(state, outcome(run));
  head.show({ text: `${run.task.slice(0, 40)} · Stockade`, asks: Math.max(head.asks, Number(run.status === "asking")) });
  const wanted = ["running", "asking"].includes(run.status) ? ["pause", "cancel"] : run.status === "paused" ? ["resume", "cancel"]
    : ["interrupted", "stopped"].includes(run.status) ? ["resume"] : [];
  if (!may("run") || bar.dataset.wanted === wanted.join()) return;
  bar.dataset.wanted = wanted.join();
  const names = { pause: "Pause", cancel: "Stop", resume: "Go on" };
  bar.replaceChildren(...wanted.map((what) => button(names[what], async () => {
    await post(`${path}/${what}`);
    if (what === "resume" && run.status !== "paused") location.reload();
  })));
}

async function questions({ path, may, asked, run, cards }, signal) {
  const open = run.waiting ? await get(`${path}/approvals`, signal) : [];
  for (const [number, card] of cards) if (!open.some((one) => one.number === number)) { card.remove(); cards.delete(number); }
  for (const one of open) if (!cards.has(one.number)) { const card = one.action ? approval(path, may, one) : question(path, may, one); cards.set(one.number, card); asked.append(card); }
}

function approval(path, may, one) {
  const why = el("textarea", { rows: 1 });
  const reply = (allow, scope = "once") => () => post(`${path}/approvals/${one.number}`, { allow, scope, ...(why.value.trim() && { note: why.value.trim() }) });
  const reasons = one.judgements.map((judged) => el("li", { textContent: Object.values(judged).filter((value) => typeof value === "string").join(": ") }));
  return el("section", { className: "card", data: { "aria-label": "Approval" } },
    el("h2", { textContent: "May it do this?" }), one.problem && el("p", { className: "bad", textContent: one.problem }),
    wanted(one.action.action ?? one.action), reasons.length > 0 && el("ul", {}, reasons),
    may("approve") ? [el("div", { className: "bar" }, button("Allow", reply(true), { className: "first" }), button("Allow for this run", reply(true, "session")), button("Always, for this bot here", reply(true, "always"))),
      el("label", {}, "Or why not: the bot is told; without words the run ends ", why), button("Refuse", reply(false))]
      : el("p", { className: "quiet", textContent: "Your token may not decide on it." }));
}

function question(path, may, one) {
  const words = el("textarea", { rows: 2, required: true });
  return el("section", { className: "card", data: { "aria-label": "Question" } }, el("h2", { textContent: "It asks" }), el("pre", { textContent: one.question }),
    may("run") && form("Answer", () => post(`${path}/messages`, { text: words.value, question: one.number }), el("label", {}, "Answer ", words)));
}

function wanted(action) {
  if (action.tool === "shell") return el("pre", { textContent: `$ ${action.command}` });
  if (action.tool === "write_file") return el("div", {}, el("p", { textContent: `write ${named(action.path)}` }), folded(action.content));
  if (action.tool === "edit_file") return el("div", {}, el("p", { textContent: `edit ${named(action.path)}` }), diffTable([...lines(action.old, "-"), ...lines(action.new, "+")].join("\n")));
  if (action.tool === "read_file") return el("p", { textContent: `read ${named(action.path)}${action.start ? ` from line ${action.start}` : ""}` });
  if (action.tool === "finish") return el("p", { textContent: action.answer });
  if (action.tool === "ask_user") return el("p", { textContent: action.question });
  if (action.tool === "tool_call") return el("div", {}, el("p", { textContent: action.name }), folded(JSON.stringify(action.arguments, null, 2)));
  return folded(JSON.stringify(action, null, 2));
}

const lines = (text, mark) => (text ? text.replace(/\n$/, "").split("\n").map((line) => mark + line) : []);

// At most FOLD lines; the rest is built when it is asked for.
function folded(text, props = {}) {
  const rows = text.split("\n");
  const shown = el("pre", { className: "out", textContent: rows.slice(0, FOLD).join("\n").slice(0, 20_000), ...props, data: { tabindex: "0" } });
  if (rows.length <= FOLD && text.length <= 20_000) return shown;
  const more = button(`Show all ${many(rows.length, "line")}`, () => { shown.textContent = plain(text); more.remove(); });
  return el("div", {}, shown, more);
}

const decoded = (chunk) => chunk.base64 == null ? chunk.text : new TextDecoder().decode(Uint8Array.from(atob(chunk.base64), (c) => c.charCodeAt(0)));

function observed(seen) {
  if (seen.kind === "command") {
    const text = seen.chunks.map(decoded).join("");
    const ended = seen.timed_out ? "timed out" : seen.exit_code ? `exit ${seen.exit_code}` : "";
    return [text && folded(text), ended && el("p", { className: "bad", textContent: ended }), seen.truncated_bytes > 0 && el("p", { className: "quiet", textContent: `${seen.truncated_bytes} bytes left out` })];
  }
  if (seen.kind === "file") return [folded(seen.text)];
  if (seen.kind === "written") return [el("p", { className: "quiet", textContent: seen.same ? "as it was" : `${seen.size} bytes written` })];
  if (seen.kind === "refused") return [el("p", { className: "warn", textContent: `not done: ${seen.reason}` })];
  if (seen.kind === "failed") return [el("p", { className: "bad", textContent: seen.message })];
  if (seen.kind === "tool" || seen.kind === "answered") return [folded(seen.text)];
  return [el("p", { textContent: "it was cut off: nobody knows whether it ran" })];
}

const address = (id) => `${location.hash.split("/").slice(0, 3).join("/")}/e${id}`;

const drawn = (item) => el("div", { className: "step", id: `e${item.id}`, tabIndex: -1 }, el("a", { href: address(item.id), className: "at" }, time(item.at)), item.draw.map((draw) => draw()), item.live);

// What shows an event, drawn when it is in sight; or nothing where it adds to one that is there.
function shownAs(view, event) {
  const { type } = event;
  const step = (...draw) => ({ id: event.id, at: event.at, events: [event], draw, live: null, node: null });
  const note = (text, className = "quiet") => step(() => el("p", { className, textContent: text }));
  const { current } = view;
  if (type === "output") {
    if (!current) return null;
    current.kept = (current.kept + event.text).slice(-40_000);
    current.live.hidden = false;
    current.live.textContent = plain(current.kept.split("\n").slice(-FOLD * 2).join("\n"));
    current.live.scrollTop = current.live.scrollHeight;
    return null;
  }
  if (type === "action_started") {
    const { command } = event.action.action;
    const copy = () => command && navigator.clipboard && button("Copy", () => navigator.clipboard.writeText(command), { className: "copy", ariaLabel: "copy the command" });
    view.current = { ...step(copy, () => wanted(event.action.action)), kept: "", live: el("pre", { className: "out", hidden: true, data: { tabindex: "0" } }) };
    return view.current;
  }
  if (type === "action_finished") {
    const observe = () => observed(event.observation);
    view.current = null;
    const said = event.words.length && step(() => event.words.map((words) => el("p", { className: "warn", textContent: `${words.hook}: ${words.text}` })));
    if (!current) return step(observe);
    current.live.remove();
    current.live = null;
    current.draw.push(observe);
    current.events.push(event);
    if (current.node) put(current.node, observe());
    return said || null;
  }
  if (type === "model_answered") {
    const { usage } = event.answer;
    view.usage.turns = event.turn; view.usage.tokens += usage.prompt_tokens + usage.completion_tokens; view.usage.cost += usage.cost;
    view.took = event.answer.duration_s;
    return null;
  }
  if (type === "answer_understood") {
    const { thought, summary, thoughts, steps, spoken } = event.answer;
    const text = [thought || summary, thoughts?.text, thoughts?.speak].filter(Boolean).join("\n");
    const last = spoken || steps.every((one) => one.action.tool === "finish");
    view.next = steps.map((one) => short(one.action)).join("; ");
    return text || last ? step(() => text && el("div", { className: "thought", textContent: text }), () => last && steps.map((one) => wanted(one.action))) : null;
  }
  if (type === "run_started" || type === "run_resumed") {
    view.started = { ...view.started, ...event };
    return type === "run_started" ? null : note(event.task ? `goes on: ${event.task}` : "goes on");
  }
  if (type === "sandbox_started") {
    view.holds = el("details", {}, el("summary", { textContent: "What holds it" }), el("ul", {}, event.guarantees.map((line) => el("li", { textContent: line }))));
    return null;
  }
  if (type === "network_requested") { view.network.push(event); return event.verdict === "refused" ? note(`network refused: ${event.method} ${event.host}:${event.port}: ${event.reason}`, "warn") : null; }
  if (type === "message_injected") return note(`${event.source}: ${event.text}`);
  if (type === "check_finished") return step(() => el("p", { className: event.passed ? "" : "bad", textContent: `check ${event.passed ? "passed" : "failed"}: ${event.command}` }), () => !event.passed && observed(event.observation));
  if (type === "answer_unreadable") return note(`answer not understood: ${event.message}`, "warn");
  if (type === "paused") return note(event.slept ? "the machine slept, or its clock was set: not counted" : `${event.said ? `${event.said} · ` : ""}waited ${Math.round(event.duration_s)} s`);
  if (type === "run_finished") return step(() => el("p", {}, el("b", { textContent: event.status }), ` · ${event.reason}${event.detail ? `: ${event.detail}` : ""} · ${many(event.turns, "turn")} · ${many(event.changes.length, "file")} changed`), () => event.changed_tests.length > 0 && el("p", { className: "warn", textContent: `tests were changed: ${event.changed_tests.join(", ")}` }));
  if (type === "changes_applied") return note(`applied: ${event.paths.map(named).join(", ")}`);
  if (type === "changes_undone") return note(`undone: ${event.paths.map(named).join(", ")}`);
  if (type === "changes_discarded") return note(`discarded${event.paths?.length ? `: ${event.paths.map(named).join(", ")}` : ""}`);
  if (["checkpoint", "model_started", "tools_ready", "programs_started"].includes(type)) return null;
  return step(() => el("details", {}, el("summary", { textContent: type.replaceAll("_", " ") }), el("pre", { textContent: JSON.stringify(event, null, 2) })));
}

const short = (action) => `${action.tool === "shell" ? "$" : (action.name ?? action.tool).replaceAll("_", " ")} ${(action.command ?? action.path ?? action.answer ?? action.question ?? "").split("\n")[0].slice(0, 60)}`;

// A turn in the outline: leads to its first step, and is a way to begin again behind it.
function turn({ path, may, turn, took, next, id }) {
  const from = button("↩", async () => { const { id } = await (await post(`${path}/rewind`, { turn })).json(); location.hash = `#/runs/${encodeURIComponent(id)}`; }, { title: "a new run from the end of this turn", ariaLabel: `a new run from the end of turn ${turn}` });
  return el("li", { value: turn }, el("a", { href: address(id), textContent: next }), el("span", { className: "quiet", textContent: ` ${took.toFixed(1)} s` }), may("run") && from);
}

// Words in the steps, also in those that are not in the document: the browser's own search does not see them.
function finder(all, list) {
  const box = el("input", { type: "search", placeholder: "thoughts, commands, output" }), where = el("span", { className: "quiet", data: { "aria-live": "polite" } });
  let now = null;
  const go = (by) => {
    const wanted = box.value.trim().toLowerCase(), found = wanted ? all.filter((item) => item.events.some((event) => holds(event, wanted))) : [];
    const before = found.findIndex((item) => item.id >= (now?.id ?? 0));
    const at = by > 0 ? (before < 0 ? 0 : before + (found[before] === now)) : (before < 0 ? found.length : before) - 1;
    if (now?.node) now.node.classList.remove("found");
    now = found.at(at % found.length) ?? null;
    where.textContent = now ? `${found.indexOf(now) + 1} of ${found.length}` : wanted && "not found";
    if (!now) return;
    const node = list.show(now);
    node.classList.add("found");
    node.scrollIntoView({ block: "center" });
  };
  const made = el("form", { className: "bar find", data: { role: "search" } }, el("label", { className: "row" }, "Find in this run ", box), el("button", { textContent: "Next" }), button("Previous", () => go(-1)), where);
  made.onsubmit = (event) => { event.preventDefault(); go(1); };
  return made;
}

const NAMES = new Set(["type", "kind", "tool", "stream", "base64"]);
const holds = (value, wanted) => typeof value === "string" ? value.toLowerCase().includes(wanted)
  : value !== null && typeof value === "object" && Object.entries(value).some(([name, one]) => !NAMES.has(name) && holds(one, wanted));

// What it may do, in words, and how much of its budget is used.
function summary(view) {
  const { started, usage, network, facts } = view;
  if (!started?.policy) return;
  const { policy, budget } = started;
  const modes = { ro: "only reads", overlay: "writes to a copy, which you review", rw: "writes directly" };
  const net = { none: "no network", open: "every public host", allow: `only ${policy.network.hosts.join(", ")}` }[policy.network.mode];
  const asks = { never: "asks nobody before it acts", ask: "asks before each action", rules: "asks, but for what only reads" }[started.approve];
  const refused = network.filter((one) => one.verdict === "refused").reduce((sum, one) => sum + one.count, 0);
  const used = (part, all, label) => el("div", {}, el("progress", { max: all, value: Math.min(part, all), data: { "aria-label": label } }), label);
  facts.replaceChildren();
  put(facts,
    el("h2", { textContent: "What it may do" }),
    list([...policy.folders.map((rule) => [rule.inside, `${rule.host}: ${modes[rule.mode]}`]), ["Network", net], ["Approval", asks], ["Memory", size(policy.limits.memory_bytes)], ["Disk", size(policy.limits.disk_bytes)], ["Sandbox", started.sandbox]]),
    view.holds,
    el("h2", { textContent: "Used" }),
    used(usage.turns, budget.max_turns || usage.turns || 1, budget.max_turns ? `${usage.turns} of ${budget.max_turns} turns` : many(usage.turns, "turn")),
    budget.max_tokens > 0 ? used(usage.tokens, budget.max_tokens, `${usage.tokens} of ${budget.max_tokens} tokens`) : list([["Tokens", usage.tokens.toLocaleString()]]),
    budget.max_cost > 0 ? used(usage.cost, budget.max_cost, `${usage.cost.toFixed(4)} of ${budget.max_cost} USD`) : list([["Cost", `${usage.cost.toFixed(4)} USD`]]),
    list([["Model", started.model], ["Bot", started.bot], ["Network requests", network.length ? `${network.reduce((sum, one) => sum + one.count, 0)}, ${refused} refused` : ""]]));
}
