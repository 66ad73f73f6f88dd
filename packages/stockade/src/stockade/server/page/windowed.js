// A long list of which only what is near the window is in the document; the rest is a gap as high as it was, or may be.
import { el } from "./common.js";

const CHUNK = 40, SHORT = 2;  // so many chunks are all in the document: nothing below them moves when they are near

// `draw` makes the node of an item, which is told in `item.node`; `guess`: how high one is, in pixels, before it is known.
export function windowed(place, draw, { name = "div", guess = 60 } = {}) {
  const chunks = [], of = new WeakMap();
  const near = new IntersectionObserver((all) => {
    for (const { target, isIntersecting, boundingClientRect } of all) {
      if (isIntersecting) fill(of.get(target));
      else empty(of.get(target), boundingClientRect.height);
    }
  }, { rootMargin: "100% 0px", scrollMargin: "100% 0px" });
  const made = (item) => { item.node = draw(item); return item.node; };
  function fill(chunk) {
    if (!chunk || chunk.full) return;
    chunk.full = true;
    chunk.box.style.height = "";
    chunk.box.replaceChildren(...chunk.items.map(made));
  }
  function empty(chunk, height) {
    if (!chunk.full || chunks.length <= SHORT || chunk.box.contains(document.activeElement)) return;
    chunk.full = false;
    chunk.height = height;
    chunk.box.style.height = `${height}px`;
    for (const item of chunk.items) item.node = null;
    chunk.box.replaceChildren();
  }
  function add(item) {
    let chunk = chunks.at(-1);
    if (!chunk || chunk.items.length === CHUNK) {
      chunk = { box: el(name, { className: "chunk" }), items: [], height: 0, full: false, at: chunks.length };
      chunk.box.onfocusout = () => { near.unobserve(chunk.box); near.observe(chunk.box); };  // what had the focus was kept
      chunks.push(chunk);
      of.set(chunk.box, chunk);
      place.append(chunk.box);
      chunk.full = chunks.length <= SHORT;
      near.observe(chunk.box);
    }
    chunk.items.push(item);
    item.chunk = chunk;
    chunk.height += guess;
    if (chunk.full) chunk.box.append(made(item));
    else chunk.box.style.height = `${chunk.height}px`;
  }
  // The node of an item; it and what is beside it has its place then.
  function show(item) {
    for (const at of [-1, 0, 1]) fill(chunks[item.chunk.at + at]);
    return item.node;
  }
  return { add, show };
}
