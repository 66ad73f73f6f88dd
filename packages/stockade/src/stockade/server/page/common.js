// What all screens share. What comes from a run is put in as text: nothing of it is ever markup.
export const status = document.getElementById("status");

// Characters that turn the order of what follows are seen, and turn nothing: `gpj.exe` would be read as `exe.jpg`.
export const plain = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`);

// A path, in one line.
export const named = (path) => plain(path).replace(/[\x00-\x1f\x7f]/g, (one) => (one === "\n" ? "\\n" : `\\x${one.charCodeAt(0).toString(16).padStart(2, "0")}`));

// The title of the window, and how many runs wait for the user.
export const head = {
  text: "Stockade", asks: 0,
  show(changed) { Object.assign(head, changed); document.title = `${head.asks ? `(${head.asks}) ` : ""}${plain(head.text)}`; },
};

export function el(name, props = {}, ...children) {
  const { data, ...rest } = props;
  if (typeof rest.textContent === "string") rest.textContent = plain(rest.textContent);
  const made = Object.assign(document.createElement(name), rest);
  for (const [key, value] of Object.entries(data ?? {})) made.setAttribute(key, value);
  return put(made, ...children);
}

export function put(node, ...children) {
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map((child) => (typeof child === "string" ? plain(child) : child)));
  return node;
}

// How a run stands: its state, and of one that is done what its checks said.
export function outcome({ status, verified }) {
  const judged = status === "done" && typeof verified === "boolean";
  return {
    className: `state ${judged && !verified ? "failed" : status}`,
    textContent: judged ? `done, ${verified ? "" : "not "}verified` : status,
  };
}

export class LoggedOut extends Error {}

export async function call(path, { body, signal, headers = {}, method = body ? "POST" : "GET" } = {}) {
  const answer = await fetch(path, {
    method, signal, body: body && JSON.stringify(body), redirect: "error", credentials: "same-origin",
    headers: { ...(body && { "Content-Type": "application/json" }), ...headers },
  });
  if (answer.ok) return answer;
  if (answer.status === 401 && path !== "/login") throw new LoggedOut();
  const { detail, hint } = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
  throw Object.assign(new Error(hint ? `${detail} (${hint})` : detail), { status: answer.status, detail });
}

export const get = async (path, signal) => (await call(path, { signal })).json();
export const post = (path, body = {}, headers = {}) => call(path, { method: "POST", body, headers });

export function say(error) {
  if (error.name === "AbortError") return;
  if (error instanceof LoggedOut) location.hash = "#/login";
  else status.textContent = error instanceof TypeError ? "The server cannot be reached." : plain(error.message);
}

export function button(label, act, props = {}) {
  const made = el("button", { type: "button", textContent: label, ...props });
  made.onclick = async () => {
    made.disabled = true;
    status.textContent = "";
    try { await act(made); } catch (error) { say(error); } finally { made.disabled = false; }
  };
  return made;
}

export function form(label, submit, ...children) {
  const send = el("button", { className: "first", textContent: label });
  const made = el("form", {}, ...children, send);
  made.onsubmit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    status.textContent = "";
    try { await submit(); } catch (error) { say(error); } finally { send.disabled = false; }
  };
  return made;
}

export const ago = (at) => {
  const s = Math.max(0, Date.now() / 1000 - at);
  return s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
};
export const many = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;
export const time = (at) => el("time", { className: "at quiet", textContent: new Date(at * 1000).toLocaleTimeString(), title: new Date(at * 1000).toLocaleString(), data: { datetime: new Date(at * 1000).toISOString() } });
export const size = (bytes) => (bytes ? `${Math.round(bytes / 2 ** 20)} MiB` : "no limit");
export const list = (pairs) => el("dl", {}, pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [el("dt", { textContent: name }), el("dd", {}, value instanceof Node ? value : String(value))]));

// The server says something every 15 s, were it nothing; a connection that says nothing for so long is none any more.
const SILENCE_MS = 45_000;

// Server-sent events of a run from `first` on, for ever: what broke goes on where it broke. Returns after "end".
export async function* events(path, signal, first, broken) {
  let last = first, silence;
  for (;;) {
    const cut = new AbortController(), heard = () => { clearTimeout(silence); silence = setTimeout(() => cut.abort(), SILENCE_MS); };
    try {
      heard();
      const answer = await call(`${path}?output=true`, { signal: AbortSignal.any([signal, cut.signal]), headers: last < 0 ? {} : { "Last-Event-ID": String(last) } });
      broken(false);
      let rest = "";
      for await (const text of chunks(answer.body.pipeThrough(new TextDecoderStream()))) {
        heard();
        const blocks = (rest + text).split(/\r?\n\r?\n/);
        rest = blocks.pop();
        const found = [];
        for (const block of blocks) {
          const fields = {};
          for (const line of block.split(/\r?\n/)) {
            const at = line.indexOf(":");
            if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
          }
          if (fields.event === "end") { yield found; return; }
          if (fields.data === undefined) continue;
          if (fields.id !== undefined) last = Number(fields.id);
          found.push({ id: fields.id === undefined ? null : last, type: fields.event, ...JSON.parse(fields.data) });
        }
        if (found.length) yield found;
      }
    } catch (error) {
      if (signal.aborted || error instanceof LoggedOut || error.status) throw error;
    } finally { clearTimeout(silence); }
    broken(true);
    await new Promise((done) => setTimeout(done, 1000));
    if (signal.aborted) return;
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  for (let got; !(got = await reader.read()).done;) yield got.value;
}
