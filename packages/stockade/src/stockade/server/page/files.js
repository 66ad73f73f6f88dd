// The files of the sandbox as the bot sees them: a folder is asked for when it is opened.
import { el, get, many, named, plain, say } from "./common.js";

// A link to what a file holds, as text on a page of its own.
export const whole = (path, name, label) => el("a", { href: `${path}/files/${name.split("/").map(encodeURIComponent).join("/")}`, target: "_blank", rel: "noopener", textContent: label, ariaLabel: `whole file ${plain(name)}` });

export function files(path, signal) {
  const made = folder(path, "", "Files of the sandbox", signal);
  made.className = "files";
  return made;
}

function folder(path, name, label, signal) {
  const inside = el("ul", { className: "plain" });
  const made = el("details", {}, el("summary", { textContent: label }), inside);
  made.ontoggle = async () => {
    if (!made.open) return;
    try {
      const { entries, left_out } = await get(`${path}/files?folder=${encodeURIComponent(name)}`, signal);
      inside.replaceChildren(...entries.map((one) => el("li", {}, entry(path, one, signal))));
      if (!entries.length) inside.append(el("li", { className: "quiet", textContent: "empty" }));
      if (left_out) inside.append(el("li", { className: "quiet", textContent: `${many(left_out, "entry", "entries")} more` }));
    } catch (error) { say(error); }
  };
  return made;
}

function entry(path, { path: name, kind, size, target }, signal) {
  const label = name.startsWith("/") ? name : name.split("/").at(-1);
  if (kind === "directory") return folder(path, name, `${named(label)}/`, signal);
  if (kind === "symlink") return el("span", { className: "quiet mono", textContent: `${named(label)} -> ${named(target)}` });
  if (kind === "file") return [whole(path, name, named(label)), el("span", { className: "quiet", textContent: ` ${size.toLocaleString()} bytes` })];
  return el("span", { className: "quiet mono", textContent: `${named(label)} (neither file nor folder)` });
}
