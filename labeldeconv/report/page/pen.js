"use strict";
/* What charts are drawn with: SVG nodes, scales, axes, marks, legends and the tooltip. Colours are classes (k0..k11), so
   themes need no redraw. Names come from data: they only ever become text nodes or attributes, never markup. */
const Pen = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const MARKS = [ // one shape per colour: methods can be told apart without seeing colours
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z", "M-4.5-4.5h9v9h-9Z", "M0-5.6L5.4 4.2h-10.8Z", "M0-6L5.6 0L0 6L-5.6 0Z",
    "M0 5.6L5.4-4.2h-10.8Z", "M-1.8-5.4h3.6v3.6h3.6v3.6h-3.6v3.6h-3.6v-3.6h-3.6v-3.6h3.6Z",
    "M-5-3l5-3l5 3v6l-5 3l-5-3Z", "M-5-3h10v6h-10Z", "M-3-5h6v10h-6Z", "M-4-4h8v8h-8Z",
  ];
  const pen = document.createElement("canvas").getContext("2d");

  const svg = (name, attributes, parent, text) => {
    const node = document.createElementNS(NS, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const wide = (text) => {
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    return pen.measureText(text).width;
  };
  const widest = (texts) => Math.max(0, ...texts.map(wide));
  const fitted = (text, room) => {
    if (wide(text) <= room) return text;
    while (text.length > 1 && wide(text + "…") > room) text = text.slice(0, -1);
    return text + "…";
  };

  /* Numbers: 'pct' are fractions shown in percent (the axis title has the unit), 'int' have no decimals. */
  const say = (value, form, step) => {
    if (value === null || value === undefined) return "–";
    if (form === "pct") { value *= 100; step = step && step * 100; }
    if (Math.abs(value) < 1e-12) value = 0;
    let digits = form === "int" ? 0 : form === "pct" ? 1 : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 3;
    if (step) for (digits = 0; digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6; ) digits++;
    return value.toLocaleString("en-US", { minimumFractionDigits: step ? digits : 0, maximumFractionDigits: digits });
  };
  const ticks = (low, high, about) => {
    const rough = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const out = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) out.push(k * step);
    return { step, at: out };
  };
  const extent = (values, pad, form) => {
    let low = Math.min(...values), high = Math.max(...values);
    if (!isFinite(low)) [low, high] = [0, 1];
    if (high - low < 1e-9) { const some = form === "pct" ? 0.02 : Math.abs(high) * 0.1 || 1; low -= some; high += some; }
    const more = (high - low) * pad;
    [low, high] = [low >= 0 && low - more < 0 ? 0 : low - more, high + more];
    return form === "pct" ? [Math.max(0, low), Math.min(1, high)] : [low, high];
  };

  /* A scale: from values to pixels, with ticks. Kinds: names (one place each), log, linear. */
  const scale = (axis, values, from, to, about) => {
    if (axis.names) {
      const slot = (to - from) / axis.names.length;
      return { slot, at: axis.names.map((_, i) => i), to: (v) => from + (v + 0.5) * slot, text: (v) => axis.names[v] };
    }
    if (axis.log) {
      let [low, high] = [Math.min(...values), Math.max(...values)].map((v) => Math.log10(Math.max(v, 1e-9)));
      const more = Math.max(0.12, (high - low) * 0.1);
      [low, high] = [low - more, high + more];
      let at = [];
      for (let p = Math.floor(low); p <= Math.ceil(high); p++) {
        for (const m of high - low > 3 ? [1] : high - low > 2 ? [1, 3] : [1, 2, 5]) {
          const v = Math.log10(m) + p;
          if (v >= low && v <= high) at.push(m * 10 ** p);
        }
      }
      if (at.length < 3) at = ticks(10 ** low, 10 ** high, 4).at;
      const map = (v) => from + (Math.log10(Math.max(v, 1e-9)) - low) / (high - low) * (to - from);
      return { at, to: map, text: (v) => say(v, v >= 1 ? "int" : "num") };
    }
    const [low, high] = axis.range || extent(values, axis.pad ?? 0.05, axis.form);
    let { step, at } = ticks(low, high, about);
    if (axis.at) return { at: axis.at, to: (v) => from + (v - low) / (high - low) * (to - from), text: (v) => say(v, axis.form) };
    if (axis.form === "int") at = at.filter((v) => Number.isInteger(v) || step < 1 === false);
    return { at, to: (v) => from + (v - low) / (high - low) * (to - from), text: (v) => say(v, axis.form, step) };
  };

  const mark = (parent, color, x, y, size, open) =>
    svg("path", { class: `point k${color}${open ? " open" : ""}`, d: MARKS[color % MARKS.length],
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})` }, parent);

  const legend = (box, items, lines) => {
    const list = element("ul", "legend", box);
    for (const item of items) {
      const li = element("li", "", list);
      const icon = svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, li);
      if (lines) svg("path", { class: `line k${item.color}`, d: "M-7 0H7" }, icon);
      else if (item.block) svg("rect", { class: `block k${item.color}`, x: -6, y: -6, width: 12, height: 12, rx: 2 }, icon);
      else mark(icon, item.color, 0, 0, 1);
      li.append(item.name);
    }
  };
  const canvas = (box, width, height, title) =>
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, box);

  /* One tooltip for the page. Rows: [text] or [colour, name, value]. */
  const tip = document.getElementById("tip");
  const tell = (event, rows) => {
    tip.replaceChildren();
    for (const row of rows) {
      const p = element("p", "", tip), left = element("span", "", p);
      if (row.length === 1) { left.textContent = row[0]; continue; }
      if (row[0] !== null) element("i", `key k${row[0]}`, left);
      left.append(row[1]);
      element("span", "", p, row[2]);
    }
    tip.hidden = false;
    const at = tip.getBoundingClientRect();
    const x = event.clientX + 16 + at.width > innerWidth - 8 ? event.clientX - 16 - at.width : event.clientX + 16;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, Math.min(event.clientY - at.height / 2, innerHeight - at.height - 8)) + "px";
  };
  const hush = () => { tip.hidden = true; };
  const hover = (node, rows) => {
    node.addEventListener("pointermove", (event) => tell(event, rows()));
    node.addEventListener("pointerleave", hush);
  };

  /* Axes of an xy chart: y to the left with grid lines, x below; titles are words, never turned on their side. */
  const frame = (box, spec, width, height, xs, ys, right, title) => {
    const top = 30, bottom = spec.x.counts ? 60 : 46;
    const y = scale(spec.y, ys, height - bottom, top, height / 48);
    const left = Math.ceil(widest(y.at.map(y.text))) + 12;
    const x = scale(spec.x, xs, left, width - right, Math.max(3, (width - left - right) / 90));
    const root = canvas(box, width, height, title);
    svg("text", { x: 0, y: 12, class: "title" }, root, spec.y.title);
    for (const v of y.at) {
      svg("path", { class: "grid", d: `M${left} ${y.to(v).toFixed(1)}H${width - right}` }, root);
      svg("text", { x: left - 8, y: y.to(v) + 4, "text-anchor": "end" }, root, y.text(v));
    }
    svg("path", { class: "base", d: `M${left} ${height - bottom}H${width - right}` }, root);
    let last = -1e9;
    for (const v of x.at) {
      const text = spec.x.names ? fitted(x.text(v), Math.max(x.slot - 6, 30)) : x.text(v);
      if (x.to(v) - wide(text) / 2 < last + 8) continue;
      last = x.to(v) + wide(text) / 2;
      svg("text", { x: x.to(v), y: height - bottom + 17, "text-anchor": "middle" }, root, text);
      if (spec.x.counts && x.slot > 26) {
        const count = spec.x.counts[v], told = x.slot > 60 ? `n ${say(count, "int")}` : say(count, "int");
        if (wide(told) < x.slot) svg("text", { x: x.to(v), y: height - bottom + 32, "text-anchor": "middle" }, root, told);
      }
    }
    const note = spec.x.counts ? `${spec.x.title}; below: test nodes` : spec.x.title;
    svg("text", { x: left, y: height - 4, class: "title" }, root, fitted(note, width - left));
    return { root, x, y, left, top, bottom: height - bottom, right: width - right };
  };

  return { svg, wide, widest, fitted, say, scale, mark, legend, canvas, tell, hush, hover, frame };
})();
