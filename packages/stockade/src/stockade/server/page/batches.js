// The batches of this machine, and what became of the tasks of one, as it goes on.
import { ago, button, el, get, list, many, post, put, say } from "./common.js";

const ROWS = 500;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const named = (batch) => batch.results.split("/").pop().replace(/\.results\.jsonl$/, "");
const state = (batch) => el("span", { className: `state ${batch.running ? "running" : "done"}`, textContent: batch.running ? "under way" : "not under way" });
const solved = (batch) => `${batch.solved} of ${batch.counted} solved${batch.counted ? `, ${percent(batch.solved / batch.counted)} (${percent(batch.interval[0])} to ${percent(batch.interval[1])} at 95 %)` : ""}`;

// Looks again every two seconds, as long as the screen is shown and `draw` says so.
async function watched(path, signal, draw) {
  for (;;) {
    if (!document.hidden && !draw(await get(path, signal))) return;
    await new Promise((done) => setTimeout(done, 2000));
    if (signal.aborted) return;
  }
}

export function batches(main, signal) {
  const found = el("ul", { className: "runs" });
  main.replaceChildren(el("h1", { textContent: "Batches" }), found);
  return watched("/v1/batches", signal, (all) => {
    if (found.contains(document.activeElement)) return true;
    found.replaceChildren(...all.map((batch) => el("li", {}, el("a", { href: `#/batches/${batch.id}` }, state(batch), " ", el("b", { textContent: named(batch) }), el("br"),
      el("span", { className: "quiet", textContent: batch.problem ?? [`${batch.done} of ${many(batch.tasks, "task")}`, solved(batch), `${ago(batch.begun)} ago`].join(" · ") })))));
    if (!all.length) found.replaceChildren(el("li", {}, "There are no batches on this machine yet: ", el("code", { textContent: "stockade batch run TASKS.jsonl" })));
    return true;
  });
}

export function batch(main, id, signal) {
  const head = el("div"), words = el("input", { type: "search", placeholder: "ids, tags, reasons" });
  const outcome = el("select"), body = el("tbody"), more = el("p", { className: "quiet" });
  const columns = ["Task", "Outcome", "Why", "Turns", "Seconds", "Cost"];
  const stop = button("Stop", async () => { await post(`/v1/batches/${encodeURIComponent(id)}/stop`); });
  stop.hidden = true;
  main.replaceChildren(el("h1", { textContent: "Batch" }), head, stop,
    el("div", { className: "bar" }, el("label", { className: "row" }, "Search ", words), el("label", { className: "row" }, "Outcome ", outcome)),
    el("div", { className: "wide", data: { tabindex: "0", role: "region", "aria-label": "Tasks" } }, el("table", { className: "tasks" }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { textContent: name, scope: "col" })))), body)), more);
  let attempts = [];
  const rows = () => {
    const wanted = words.value.trim().toLowerCase();
    const fits = attempts.filter((one) => (!outcome.value || one.outcome === outcome.value) && [one.id, one.reason, one.detail, ...one.tags].join("\n").toLowerCase().includes(wanted));
    body.replaceChildren(...fits.slice(0, ROWS).map((one) => el("tr", {},
      el("td", {}, el("a", { href: `#/runs/${encodeURIComponent(one.run)}`, textContent: one.epoch > 1 ? `${one.id} (epoch ${one.epoch})` : one.id })),
      [one.attempt > 1 ? `${one.outcome}, attempt ${one.attempt}` : one.outcome, [one.reason, one.detail].filter(Boolean).join(": "), one.turns, one.seconds.toFixed(1), one.cost ? one.cost.toFixed(4) : ""].map((text) => el("td", { textContent: String(text) })))));
    more.textContent = fits.length > ROWS ? `The first ${ROWS} of ${fits.length}: search for the others.` : `${many(fits.length, "task")}`;
  };
  words.oninput = outcome.onchange = rows;
  return watched(`/v1/batches/${encodeURIComponent(id)}`, signal, (told) => {
    main.querySelector("h1").textContent = named(told);
    head.replaceChildren(); put(head, state(told), el("progress", { max: Math.max(1, told.tasks), value: told.done, data: { "aria-label": "tasks that are over" } }),
      list([["Tasks", `${told.done} of ${told.tasks}`], ["Solved", solved(told)], ["Tokens", told.tokens], ["Cost", `${told.cost.toFixed(4)} USD`], ["Results", told.results]]),
      told.problem && el("p", { className: "bad", textContent: told.problem }));
    stop.hidden = !told.running;
    const chosen = outcome.value;
    outcome.replaceChildren(el("option", { value: "", textContent: "all" }), ...Object.entries(told.outcomes).map(([name, count]) => el("option", { value: name, textContent: `${name} (${count})` })));
    outcome.value = chosen;
    if (JSON.stringify(told.attempts) !== JSON.stringify(attempts)) { attempts = told.attempts; rows(); } else if (!attempts.length) rows();
    return told.running;
  }).catch(say);
}
