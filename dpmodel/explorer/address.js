// The address of the page: after its "#" stand the part of the page and every choice that is not the default, as in
// "#map&map-part=column&map-n=10000". It alone decides what is chosen: it survives a reload, goes back, and can be shared.
"use strict";

(() => {
  const parts = { plane: Plane, map: Table1, attack: Attack, cells: Cells };
  const PAUSE = 300; // milliseconds without a touch: a drag or a key held down is one step back

  const told = (id, { state, choices }) =>
    Object.entries(choices).map(([name, choice]) => `${id}-${name}=${choice.text(state[name])}`);
  const all = () => Object.entries(parts).flatMap(([id, part]) => told(id, part));
  const initial = all(), defaults = new URLSearchParams(initial.join("&"));
  const chosen = () => all().filter(each => !initial.includes(each));
  const address = id => `#${[id, ...chosen()].join("&")}`;
  let written; // the choices in the address

  // Whatever cannot be read is the default. Only parts of the page that change are shown again.
  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [id, part] of Object.entries(parts)) {
      const before = told(id, part).join();
      for (const [name, choice] of Object.entries(part.choices)) {
        part.state[name] = choice.read(given.get(`${id}-${name}`)) ?? choice.read(defaults.get(`${id}-${name}`));
      }
      if (told(id, part).join() !== before) part.restore();
    }
    written = chosen().join();
    return Object.keys(parts).find(id => given.has(id));
  }

  function write(id) {
    if (chosen().join() === written) return;
    written = chosen().join();
    history.pushState("ours", "", address(id));
  }

  let waiting;
  for (const id of Object.keys(parts)) {
    for (const touch of ["change", "click", "keyup", "pointerup"]) {
      byId(id).addEventListener(touch, () => {
        clearTimeout(waiting);
        waiting = setTimeout(write, PAUSE, id);
      });
    }
  }
  // A link to a part of the page keeps the choices; other addresses that come are read.
  addEventListener("hashchange", () => {
    const id = location.hash.slice(1), link = history.state !== "ours" && Object.keys(parts).includes(id);
    if (!link) return read();
    clearTimeout(waiting); // else a choice made just before would lead back to its own part
    written = chosen().join();
    history.replaceState("ours", "", address(id));
  });
  byId(read())?.scrollIntoView();
  history.replaceState("ours", "");
})();
