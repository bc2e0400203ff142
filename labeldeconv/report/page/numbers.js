"use strict";
/* What the explorer says where labels are numbers: values in their unit, how far predictions are off, and bars that lean to
   either side of the mean of the train nodes. */
const Numbers = (data, table) => {
  const REACH = 2; // standard deviations on either side of a bar's middle
  const [mean, std, digits] = data.unit, single = data.classes.length === 1;

  const say = (value, k, sign) => figure(value, digits[k], sign);
  const all = (values) => (values === null ? "unlabelled" : values.map((value, k) => say(value, k)).join(", "));
  const named = (values) => (values === null ? "unlabelled" : values.map((value, k) => `${data.classes[k]} ${say(value, k)}`).join(", "));
  const size = (far) => (single ? say(far * std[0], 0) : `${far.toFixed(2)} std`);

  /* [name, whether a node is listed, what nodes are sorted by, the largest first] */
  const filters = () => {
    const r = data.reference, called = data.entries[r].name, others = data.entries.map((_, k) => k).filter((k) => k !== r);
    const far = (n, k) => n.p[k][2], least = (n, of) => Math.min(...of.map((k) => far(n, k)));
    const judged = (n) => n.r !== 0 && far(n, r) !== null;
    const found = [[`${called}: largest error first`, judged, (n) => far(n, r)]];
    if (!others.length) return found;
    const gain = (n) => least(n, others) - far(n, r);
    const apart = (n) => data.classes.reduce((sum, _, k) => {
      const said = n.p.map((p) => p[0][k]);
      return sum + (Math.max(...said) - Math.min(...said)) / std[k];
    }, 0) / data.classes.length;
    return [...found,
      [`${called} better than all others`, (n) => judged(n) && gain(n) > 0, gain],
      [`${called} worse than another`, (n) => judged(n) && gain(n) < 0, (n) => -gain(n)],
      ["All far off", judged, (n) => least(n, [r, ...others])],
      ["Methods differ most", () => true, apart]];
  };

  const lean = (parent, text, deviations, color, best) => {
    const box = element("div", "meter lean", parent);
    if (deviations !== null) {
      const share = Math.min(1, Math.abs(deviations) / REACH) * 50, bar = element("b", `k${color}`, element("i", "", box));
      bar.style.width = `${share}%`;
      bar.style.marginLeft = `${deviations < 0 ? 50 - share : 50}%`;
    } else element("i", "", box);
    element("span", best ? "best" : "", box, text);
  };

  const predictions = (view, node) => {
    element("h4", "", view, "Predictions");
    const body = table(view, ["method", ...data.classes.flatMap((name) => [name, "error"])]);
    const off = (p, k) => (node.y === null || node.y[k] === null ? null : p[0][k] - node.y[k]);
    const least = data.classes.map((_, k) => Math.min(...node.p.map((p) => Math.abs(off(p, k) ?? NaN))));
    const truth = element("tr", "", body);
    element("th", "", truth, "true").scope = "row";
    data.classes.forEach((_, k) => {
      element("td", "", truth, say(node.y && node.y[k], k));
      element("td", "", truth);
    });
    data.entries.forEach((entry, e) => {
      const row = element("tr", "", body), head = element("th", "", row), p = node.p[e];
      head.scope = "row";
      element("i", `key k${entry.color}`, head);
      head.append(entry.name);
      data.classes.forEach((_, k) => {
        const error = off(p, k);
        element("td", "", row, say(p[0][k], k) + (p[1].length ? ` ± ${say(p[1][k], k)}` : ""));
        lean(element("td", "metered", row), say(error, k, true), error === null ? null : error / std[k], entry.color, Math.abs(error) === least[k] && data.entries.length > 1);
      });
    });
    const seeds = data.entries.some((entry) => entry.seeds > 1) ? "Means over seeds, ± their standard deviation. " : "";
    element("p", "note", view, `${seeds}In the unit of the labels; a bar ends at ${REACH} standard deviations of the train nodes.`);
  };

  const hops = (view, node) => {
    element("h4", "", view, "Labels by hop");
    const body = table(view, ["target", ...data.slices]);
    data.classes.forEach((name, k) => {
      const row = element("tr", "", body);
      element("th", "", row, name).scope = "row";
      node.b[k].forEach((value, s) => lean(element("td", "metered", row), say(value, k), value === null ? null : (value - mean[k]) / std[k], data.slices[s] === "inverse" ? 0 : data.slices[s] === "true" ? 8 : 9));
    });
    const middle = `Bars lean from the mean of the train nodes (${mean.map((value, k) => say(value, k)).join(", ")}), ${REACH} standard deviations to either side.`;
    element("p", "note", view, data.slices.length > 1 ? `K0 holds true numbers on train nodes and predicted ones elsewhere; Ki averages K0 over the nodes i hops away; from ${data.origin}. ${middle}` : middle);
  };

  return { say, all, named, size, filters, predictions, hops };
};
