import { LoggedOut, ago, button, call, el, form, get, head, list, many, outcome, post, say, status } from "./common.js";
import { batch, batches } from "./batches.js";
import { here, watch } from "./run.js";

const main = document.getElementById("main"), who = document.getElementById("who");
let stop = new AbortController();

async function login(key) {
  if (key) {
    history.replaceState(null, "", "#/");
    await call("/login", { body: { key } });
    return show();
  }
  main.replaceChildren(
    el("h1", { textContent: "Log in" }),
    el("p", {}, "Open the link that ", el("code", { textContent: "stockade serve" }), " printed when it started, or ask for a new one on that machine:"),
    el("pre", { textContent: "stockade serve token login first" }),
  );
}

const words = (run) => [run.folder ?? "no folder", run.bot, run.model, many(run.turns, "turn"), `${ago(run.started)} ago`].join(" · ");

function line(run) {
  return el("li", {}, el("a", { href: `#/runs/${encodeURIComponent(run.id)}` },
    el("span", outcome(run)), " ",
    el("b", { textContent: run.task.slice(0, 200) }), el("br"), el("span", { className: "quiet", textContent: words(run) })));
}

async function runs(signal) {
  const wanted = el("input", { type: "search", placeholder: "tasks, answers, commands" });
  const state = el("select", {}, ["", "asking", "running", "paused", "done", "stopped", "failed", "interrupted"].map((name) => el("option", { value: name, textContent: name || "all states" })));
  const found = el("ul", { className: "runs" }), more = el("div"), empty = el("div");
  main.replaceChildren(
    el("h1", { textContent: "Runs" }),
    el("div", { className: "bar" }, el("label", { className: "row" }, "Search ", wanted), el("label", { className: "row" }, "State ", state)),
    found, more, empty);
  let shown = 0;
  async function page(cursor) {
    const asked = new URLSearchParams({ limit: "50" });
    if (cursor) asked.set("cursor", cursor);
    if (state.value) asked.set("status", state.value);
    if (wanted.value.trim()) asked.set("words", wanted.value.trim());
    const answer = await get(`/v1/runs?${asked}`, signal);
    if (!cursor) { answer.runs.sort((a, b) => (b.waiting > 0) - (a.waiting > 0)); found.replaceChildren(); shown = 0; }
    found.append(...answer.runs.map(line));
    shown += answer.runs.length;
    more.replaceChildren(...(answer.next ? [button("More", () => page(answer.next))] : []));
    empty.replaceChildren(...(shown ? [] : asked.size > 1 ? [el("p", { textContent: "No run is like that." })] : [
      el("p", {}, "There are no runs yet. ", el("a", { href: "#/new", textContent: "Begin one" }), "."),
      el("p", { textContent: "You say what is to be done, and in which folder. A bot works in a sealed sandbox on a copy of it, while you watch; then you review what it changed, file by file, and apply what you like. Until you apply, nothing in the folder changes; afterwards you can undo it." })]));
  }
  let late;
  wanted.oninput = state.onchange = () => { clearTimeout(late); late = setTimeout(() => page().catch(say), 200); };
  await page();
  const timer = setInterval(() => { if (!document.hidden && shown <= 50 && !found.contains(document.activeElement)) page().catch(say); }, 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

async function begin(signal) {
  const [models, bots] = await Promise.all([get("/v1/models", signal), get("/v1/bots", signal)]);
  const task = el("textarea", { rows: 5, required: true }), folder = el("input", { placeholder: "." });
  const pick = (names) => el("select", {}, names.map((name) => el("option", { textContent: name })));
  const model = pick(models), bot = pick(["(the server's)", ...bots]), check = el("input", { placeholder: "pytest -q" });
  const mode = el("select", {}, el("option", { value: "overlay", textContent: "write to a copy, which you review" }), el("option", { value: "ro", textContent: "only read" }));
  const approve = el("select", {}, el("option", { value: "", textContent: "as the server has it" }), el("option", { value: "rules", textContent: "asks, but for what only reads" }), el("option", { value: "ask", textContent: "asks before each action" }));
  const bound = (name, about, step) => [name, el("input", { type: "number", min: step, step, placeholder: "the server's" }), about];
  const bounds = [bound("max_turns", "Turns at most", 1), bound("timeout", "Seconds at most", 1), bound("max_cost", "USD at most", 0.01)];
  const key = crypto.randomUUID?.() ?? String(Math.random());
  main.replaceChildren(el("h1", { textContent: "New run" }), form("Begin", async () => {
    const body = { task: task.value, folder: folder.value.trim() || ".", mode: mode.value, model: model.value };
    body.limits = Object.fromEntries(bounds.filter(([, box]) => box.value).map(([name, box]) => [name, Number(box.value)]));
    if (bot.selectedIndex) body.bot = bot.value;
    if (approve.value) body.approve = approve.value;
    if (check.value.trim()) body.check = [check.value.trim()];
    const run = await (await post("/v1/runs", body, { "Idempotency-Key": key })).json();
    location.hash = `#/runs/${encodeURIComponent(run.id)}`;
  },
  el("label", {}, "What is to be done ", task),
  el("label", {}, "Folder, one that the server allows ", folder),
  el("fieldset", {}, el("legend", { textContent: "What it may do" }),
    el("label", {}, "With the folder, it may ", mode), el("label", {}, "Before it acts, it ", approve)),
  el("label", {}, "It is done when this succeeds (may be left out) ", check),
  el("details", {}, el("summary", { textContent: "Bot, model and limits" }), el("label", {}, "Bot ", bot), el("label", {}, "Model ", model),
    bounds.map(([, box, about]) => el("label", {}, `${about} `, box)))));
  task.focus();
}

const MODEL = { loaded: "loaded, answers at once", here: "here, is loaded when it is asked", absent: "not here", unreachable: "its server does not answer", hosted: "elsewhere, asked when a run begins", unknown: "nothing is known of it before it is asked" };

async function server(signal) {
  const [models, bots, tools, mine] = await Promise.all(["/v1/models", "/v1/bots", "/v1/tools", "/v1/token"].map((path) => get(path, signal)));
  const names = (all) => el("ul", {}, all.map((name) => el("li", { textContent: name })));
  const states = models.map((name) => [name, el("span", { className: "quiet", textContent: "asked …" })]);
  main.replaceChildren(el("h1", { textContent: "Server" }),
    list([["You are", mine.name], ["You may", mine.scopes.join(", ")], ["Runs at once", mine.at_once], ["Cost in all", mine.max_cost === null ? "no limit of yours" : `${mine.max_cost} USD`]]),
    button("Log out", async () => { await post("/logout"); location.hash = "#/login"; }),
    el("h2", { textContent: "Models" }), el("ul", {}, states.map(([name, state]) => el("li", {}, `${name}: `, state))), el("h2", { textContent: "Bots" }), names(bots),
    el("h2", { textContent: "Tools" }), el("ul", {}, tools.map((tool) => el("li", { textContent: `${tool.name} (${tool.kind}): ${tool.about}` }))));
  for (const [name, state] of states) get(`/v1/models/${name.split("/").map(encodeURIComponent).join("/")}`, signal).then((told) => { state.textContent = MODEL[told.state] + (told.detail ? ` (${told.detail})` : ""); }).catch(say);
  if (mine.scopes.includes("admin")) {
    const found = el("div");
    main.append(el("h2", { textContent: "What this machine can enforce" }), button("Try it now", async () => {
      const all = await get("/v1/doctor", signal);
      found.replaceChildren(el("ul", {}, all.map((one) => el("li", { textContent: Object.values(one).filter((value) => value !== null && value !== "").map(String).join(" · ") }))));
    }), found);
  }
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const links = [...main.querySelectorAll(".runs a, .file > summary, .step[tabindex]")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "j" || event.key === "k") links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  else if (event.key === "n") location.hash = "#/new";
  else if (event.key === "r") location.hash = "#/";
  else if (event.key === "/") main.querySelector("[type=search]")?.focus();
  else if (event.key === "a") main.querySelector(".card .first, aside .first")?.focus();
  else if (event.key === "?") status.textContent = "j, k: next, previous · Enter: open, or do it · a: to what is to be decided · /: search · r: runs · n: new run";
  else return;
  event.preventDefault();
}

async function show() {
  const [, where, id, step] = location.hash.split("/").map(decodeURIComponent);
  if (where === "runs" && id && main.dataset.run === id && step) return here.goTo(step);
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  status.textContent = "";
  head.show({ text: "Stockade" });
  if (location.hash.startsWith("#login=")) return login(location.hash.slice(7));
  if (where === "login") { who.textContent = ""; return login(); }
  main.dataset.run = where === "runs" ? id : "";
  const mine = await get("/v1/token", signal);
  who.textContent = mine.name;
  document.getElementById("batches").hidden = !mine.scopes.includes("admin");
  if (where === "runs" && id) await watch(main, id, mine, signal, step);
  else if (where === "new") await begin(signal);
  else if (where === "batches") await (id ? batch(main, id, signal) : batches(main, signal));
  else if (where === "server") await server(signal);
  else await runs(signal);
}

// Whatever is on the screen, the head of the page says which runs wait for the user.
const asks = document.getElementById("asks");
async function waiting() {
  if (!who.textContent) return;
  const { runs } = await get("/v1/runs?limit=50");
  const found = runs.filter((run) => run.waiting > 0);
  asks.hidden = !found.length;
  asks.textContent = `${many(found.length, "run asks", "runs ask")} you`;
  if (found.length) asks.href = `#/runs/${encodeURIComponent(found[0].id)}`;
  head.show({ asks: found.length });
}
let lost = false;
setInterval(async () => {
  try {
    await waiting();
    if (lost) status.textContent = "";
    lost = false;
  } catch (error) { lost = true; say(error); }
}, 3000);

const shown = () => show().then(waiting).catch((error) => (error instanceof LoggedOut ? login() : say(error)));
addEventListener("hashchange", shown);
addEventListener("keydown", keys);
shown();
