// What a run changed: by file, with comments for the bot; what becomes of it.
import { button, call, el, form, many, named, post, put, status } from "./common.js";
import { whole } from "./files.js";

let sideBySide = false;

export async function review(view, signal) {
  const { path, may, changed, run } = view;
  let answer;
  try { answer = await call(`${path}/diff?colours=true`, { signal }); } catch (error) {
    if (!error.status) throw error;
    changed.replaceChildren(el("h2", { textContent: "Changes" }), el("p", { className: "bad", textContent: error.message }));
    return;
  }
  const etag = answer.headers.get("ETag"), { files, masked, applied, undone, caches } = await answer.json();
  const again = async () => { Object.assign(run, await (await call(path, { signal })).json()); await review(view, signal); };
  const decide = (what, body, headers) => async () => {
    const { paths, left } = await (await post(`${path}/${what}`, body(), headers)).json();
    const done = { apply: "applied", undo: "undone", discard: "discarded" }[what];
    await again();
    status.textContent = [`${many(paths.length, "file")} ${done}`, ...Object.entries(left).map(([name, why]) => `not ${named(name)}: ${why}`)].join(" · ");
  };
  const box = el("section", { data: { "aria-label": "Review" } }), clash = el("div");
  document.querySelector("[aria-label=Review]")?.remove();
  changed.replaceChildren(el("h2", { textContent: "Changes" }));
  if (!files.length) {
    const words = { applied: "Applied to the folder.", undone: "Taken back.", discarded: "Thrown away." }[run.decided] ?? "Nothing was changed.";
    changed.append(el("p", { textContent: words }));
    if (may("approve")) put(changed, takeBack(applied, decide));
    if (may("approve") && undone.length) changed.append(button("Apply again", decide("apply", () => ({}), { "If-Match": "*" })));
    return;
  }
  const picked = new Map(), comments = new Map();
  for (const file of files) picked.set(file.path, el("input", { type: "checkbox", checked: !file.change.held && !file.change.refused, disabled: Boolean(file.change.refused), data: { "aria-label": `apply ${file.path}` } }));
  const chosen = () => [...picked].filter(([, box]) => box.checked).map(([name]) => name);
  const apply = button("", async () => {
    const names = chosen(), whole = names.length === files.length;
    const wanted = whole ? { flagged: true } : { paths: names };
    const retry = (label, how) => button(label, decide("apply", () => ({ ...wanted, ...how }), { "If-Match": etag }));
    try { await decide("apply", () => wanted, { "If-Match": etag })(); } catch (error) {
      if (error.status === 412) await again();
      if (error.status !== 409) throw error;
      const since = await (await call(`${path}/diff?host=true`, { signal })).json();
      clash.replaceChildren(el("section", { className: "card", data: { "aria-label": "Conflict" } }, el("h3", { textContent: "The folder has changed as well" }), el("p", { textContent: error.detail }),
        since.files.map((file) => el("details", { className: "file", open: since.files.length < 5 }, el("summary", {}, "In the folder since: ", el("span", { className: "mono", textContent: named(file.path) })), diffTable(file.patch))),
        el("div", { className: "bar" }, retry("Merge both", { merge: true }), retry("Write the bot's over it", { force: true })), el("p", { className: "quiet", textContent: "Nothing has been written. What cannot be merged is left as it is; an undo takes back either." })));
    }
  }, { className: "first" });
  const sure = () => confirm("Throw these changes away? The folder stays as it is.");
  const some = button("", async () => { const names = chosen(); if (sure()) await decide("discard", () => ({ paths: names }), { "If-Match": etag })(); });
  const count = () => {
    const all = many(files.length, "file"), number = chosen().length;
    apply.textContent = `Apply ${number} of ${all}`; some.textContent = `Discard ${number} of ${all}`;
    some.hidden = number === 0 || number === files.length;
  };
  for (const one of picked.values()) one.onchange = count;
  count();
  const total = (name) => files.reduce((sum, file) => sum + file.change[name], 0);
  const told = el("div");
  const ask = () => {
    const all = [...comments].map(([where, text]) => `${where}: ${text}`);
    told.replaceChildren(...(all.length ? [form(`Send ${many(all.length, "comment")} to the bot`, async () => { await post(`${path}/messages`, { text: `About your changes:\n${all.join("\n")}` }); location.reload(); }, el("ul", {}, all.map((text) => el("li", { textContent: text }))))] : []));
  };
  const ordered = files.toSorted((a, b) => Boolean(b.change.flagged ?? b.change.refused) - Boolean(a.change.flagged ?? a.change.refused));
  put(changed,
    el("p", { textContent: `${many(files.length, "file")}, +${total("added_lines")} −${total("removed_lines")}` }),
    el("ul", {}, ordered.map((file) => el("li", {}, el("span", { className: "mono", textContent: `${{ added: "A", deleted: "D", modified: "M" }[file.change.kind] ?? file.change.kind} ${named(file.path)}` }), file.change.flagged && el("span", { className: "warn", textContent: ` ${file.change.flagged}` })))),
    Object.keys(caches).length > 0 && el("p", { className: "quiet", textContent: `caches are left out: ${Object.entries(caches).map(([name, count]) => `${named(name)} ${count}`).join(", ")}` }),
    masked.length > 0 && el("p", { className: "warn", textContent: `hidden here, and in the files: ${masked.join(", ")}` }),
    may("approve") && el("div", { className: "bar" }, apply, some, button("Discard all", async () => { if (sure()) await decide("discard", () => ({}))(); })), clash, told,
    may("approve") && takeBack(applied, decide));
  const draw = () => box.replaceChildren(
    el("h2", { textContent: "Review" }), button(sideBySide ? "In line" : "Side by side", () => { sideBySide = !sideBySide; draw(); }),
    ...ordered.map((file) => {
      const { change } = file, words = change.refused ?? change.flagged;
      const comment = may("run") && ((line, at) => note(file.path, line, at, comments, ask));
      return el("details", { className: "file", open: files.length < 30 }, el("summary", {}, el("span", { className: "mono", textContent: named(file.path) }), ` ${change.kind} +${change.added_lines} −${change.removed_lines}`, words && el("span", { className: "warn", textContent: ` ${words}` })),
        el("div", { className: "bar" }, may("approve") && el("label", { className: "row" }, picked.get(file.path), " apply this file"),
          !change.binary && ["added", "modified"].includes(change.kind) && whole(path, file.path, "whole file")),
        change.binary ? el("p", { textContent: `binary, ${change.size} bytes` }) : file.patch ? diffTable(file.patch, { file, comment }) : el("p", { textContent: change.entry }));
    }));
  draw();
  view.steps.after(box);
}

// What is in the folder now, to be taken back file by file.
function takeBack(applied, decide) {
  const rows = applied.map((name) => [name, el("input", { type: "checkbox", checked: true, data: { "aria-label": `undo ${name}` } })]);
  const chosen = () => rows.filter(([, box]) => box.checked).map(([name]) => name);
  const undo = button("", decide("undo", () => (chosen().length === rows.length ? {} : { paths: chosen() })));
  const count = () => { undo.textContent = `Undo ${chosen().length} of ${many(rows.length, "file")}`; undo.disabled = !chosen().length; };
  for (const [, box] of rows) box.onchange = count;
  count();
  return rows.length > 0 && el("section", { data: { "aria-label": "Applied" } }, el("h3", { textContent: "In the folder" }),
    el("ul", { className: "plain" }, rows.map(([name, box]) => el("li", {}, el("label", { className: "row" }, box, el("span", { className: "mono", textContent: ` ${named(name)}` }))))), undo);
}

function note(path, line, at, comments, changed) {
  const where = `${path}:${line}`, words = el("input", { value: comments.get(where) ?? "", data: { "aria-label": `comment on ${where}` } });
  const row = el("tr", {}, el("td", { colSpan: 4 }, form("Keep", () => { if (words.value.trim()) comments.set(where, words.value.trim()); else comments.delete(where); row.remove(); changed(); }, el("label", {}, `Comment on ${where} `, words))));
  at.after(row);
  words.focus();
}

// A unified patch as a table. `file.colours`: for each line of the patch its pieces, [class, text].
export function diffTable(patch, { file, comment } = {}) {
  const wide = sideBySide && file, body = el("tbody");
  let old = 1, now = 1, minus = [], plus = [], head = /^@@ -\d/m.test(patch);
  const number = (value) => { const cell = el("td", { className: "no" }); if (value && comment) { const at = el("button", { type: "button", textContent: value, title: "comment on this line", data: { "aria-label": `comment on line ${value}` } }); at.onclick = () => comment(value, at.closest("tr")); cell.append(at); } else cell.textContent = value ?? ""; return cell; };
  const code = (text, at, className) => el("td", { className }, file?.colours?.[at] ? file.colours[at].map(([kind, piece]) => (kind ? el("span", { className: kind, textContent: piece }) : piece)) : text);
  const side = (one, className, mark) => one ? [number(one.no), el("td", { className }, el("span", { className: "quiet", textContent: mark }), ...code(one.text, one.at, "").childNodes)] : [number(), el("td")];
  const flush = () => {
    if (wide) for (let row = 0; row < Math.max(minus.length, plus.length); row += 1) body.append(el("tr", {}, ...side(minus[row], "minus", "-"), ...side(plus[row], "plus", "+")));
    else for (const [rows, className, mark] of [[minus, "minus", "-"], [plus, "plus", "+"]]) for (const one of rows) { const cells = side(one, className, mark); body.append(el("tr", {}, ...(mark === "-" ? [cells[0], number()] : [number(), cells[0]]), cells[1])); }
    minus = []; plus = [];
  };
  patch.replace(/\n$/, "").split("\n").forEach((line, at) => {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) { flush(); head = false; old = Number(hunk[1]); now = Number(hunk[2]); body.append(el("tr", { className: "hunk" }, el("td", { colSpan: wide ? 4 : 3, textContent: line }))); return; }
    if (head) { if (!/^(diff --git|index|---|\+\+\+) /.test(line)) body.append(el("tr", { className: "hunk" }, el("td", { colSpan: wide ? 4 : 3, textContent: line }))); return; }
    if (line.startsWith("-")) { minus.push({ no: old, text: line.slice(1), at }); old += 1; return; }
    if (line.startsWith("+")) { plus.push({ no: now, text: line.slice(1), at }); now += 1; return; }
    flush();
    if (!line.startsWith(" ")) { body.append(el("tr", { className: "hunk" }, el("td", { colSpan: wide ? 4 : 3, textContent: line }))); return; }
    const text = line.slice(1);
    if (wide) body.append(el("tr", {}, number(old), code(text, at, ""), number(now), code(text, at, "")));
    else body.append(el("tr", {}, number(old), number(now), code(text, at, "")));
    old += 1; now += 1;
  });
  flush();
  const columns = wide ? [el("col", { className: "no" }), el("col"), el("col", { className: "no" }), el("col")] : [el("col", { className: "no" }), el("col", { className: "no" }), el("col")];
  return el("table", { className: "diff" }, el("colgroup", {}, columns), body);
}
