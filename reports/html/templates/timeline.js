"use strict";
// Timelines: single operations where they are known and few enough, otherwise what each rank does most in each interval.
Paceline.MOST_BARS = 2500;
Paceline.timelines = {};

// Returns a typed array from its base64 text.
Paceline.decode = function (one) {
  const text = atob(one.data), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const Typed = { Uint8: Uint8Array, Uint16: Uint16Array, Int16: Int16Array, Int32: Int32Array, Float32: Float32Array, Float64: Float64Array }[one.type];
  return new Typed(bytes.buffer);
};

Paceline.timelineRun = function (id) {
  const state = (Paceline.timelines[id] = Paceline.timelines[id] || { runs: {} });
  const number = Paceline.chosen[id] || 0;
  if (!state.runs[number]) {
    const raw = Paceline.data.timelines[id][number];
    const spans = Object.fromEntries(Object.entries(raw.spans).map(([name, one]) => [name, Paceline.decode(one)]));
    state.runs[number] = Object.assign({}, raw, { spans, shares: Paceline.decode(raw.shares), range: [0, raw.wall_s] });
  }
  return state.runs[number];
};

// Returns the indices of the spans in a range; null if not all of them are in the file or if they are too many to draw.
Paceline.spansIn = function (run, from, to) {
  if (!run.stretches.some(([begin, end]) => from >= begin - 1e-12 && to <= end + 1e-12)) return null;
  const { start, length } = run.spans, found = [];
  for (let at = 0; at < start.length; at++) {
    if (start[at] < to && start[at] + length[at] >= from) {
      found.push(at);
      if (found.length > Paceline.MOST_BARS) return null;
    }
  }
  return found;
};

Paceline.seconds = (value) => (value >= 1 ? value.toPrecision(4) + " s" : value >= 1e-3 ? (1e3 * value).toPrecision(4) + " ms" : (1e6 * value).toPrecision(4) + " µs");

// One trace for each activity, one bar for each operation.
Paceline.bars = function (run, found) {
  const { spans } = run;
  return run.activities.map((name, activity) => {
    const mine = found.filter((at) => spans.activity[at] === activity);
    const colour = Paceline.data.activities[name].colour, words = Paceline.data.activities[name].words;
    return {
      type: "bar", orientation: "h", name: words, base: mine.map((at) => spans.start[at]), x: mine.map((at) => spans.length[at]),
      y: mine.map((at) => spans.row[at]), width: 0.82, marker: { color: colour, line: { width: 0.5, color: "#E1E4E8" } },
      hovertext: mine.map((at) => {
        const layer = spans.layer && spans.layer[at] >= 0 ? `<br>layer ${run.layers[spans.layer[at]]}` : "";
        const bytes = spans.bytes && spans.bytes[at] > 0 ? `<br>${spans.bytes[at].toLocaleString("en")} bytes` : "";
        return `rank ${run.rows[spans.row[at]]}, step ${spans.step[at]}<br>${words}${layer}${bytes}<br>` +
          `${Paceline.seconds(spans.length[at])} from ${spans.start[at].toPrecision(6)} s`;
      }),
      hoverinfo: "text", showlegend: mine.length > 0,
    };
  });
};

// A map of the whole run: the colour of a cell is what the rank does most in an interval, paler if it takes a smaller
// share of it. The cells are one image; invisible points carry what a reader sees when pointing at them, and empty bars
// make the legend.
Paceline.map = function (run) {
  const rows = run.rows.length, bins = run.bins, width = run.wall_s / bins, points = { x: [], y: [], text: [] };
  const tall = rows > 40 ? 1 : 12, gap = rows > 40 ? 0 : 1;  // pixels of a row in the image, and those left free between rows
  const canvas = Object.assign(document.createElement("canvas"), { width: bins, height: rows * tall }), brush = canvas.getContext("2d");
  for (let row = 0; row < rows; row++) {
    for (let bin = 0; bin < bins; bin++) {
      const parts = run.activities.map((name, kind) => [run.shares[(kind * rows + row) * bins + bin], name])
        .filter(([share]) => share > 0).sort((a, b) => b[0] - a[0]);
      points.x.push((bin + 0.5) * width);
      points.y.push(row);
      points.text.push(`rank ${run.rows[row]}, ${(bin * width).toPrecision(4)} to ${((bin + 1) * width).toPrecision(4)} s<br>` +
        (parts.map(([share, name]) => `${share} % ${Paceline.data.activities[name].words}`).join("<br>") || "nothing recorded"));
      if (!parts.length) continue;
      brush.globalAlpha = 0.45 + 0.55 * Math.max(0, Math.min(1, (parts[0][0] - 40) / 60));
      brush.fillStyle = Paceline.themed(Paceline.data.activities[parts[0][1]].colour);
      brush.fillRect(bin, row * tall + gap / 2, 1, tall - gap);
    }
  }
  const image = {
    source: canvas.toDataURL(), xref: "x", yref: "y", x: 0, y: -0.5, sizex: run.wall_s, sizey: rows, xanchor: "left", yanchor: "top", sizing: "stretch",
    layer: "below",
  };
  const cells = Object.assign(points, { type: "scatter", mode: "none", hoverinfo: "text", hoveron: "points", showlegend: false });
  const legend = run.activities.map((name) => ({
    type: "bar", orientation: "h", x: [null], y: [null], name: Paceline.data.activities[name].words,
    marker: { color: Paceline.data.activities[name].colour }, hoverinfo: "skip",
  }));
  return { traces: [cells, ...legend], images: [image] };
};

Paceline.drawTimeline = function (id) {
  const node = document.getElementById(id), run = Paceline.timelineRun(id);
  const [from, to] = run.range, rows = run.rows.length;
  const found = Paceline.spansIn(run, from, to);
  const { traces, images } = found ? { traces: Paceline.bars(run, found), images: [] } : Paceline.map(run);
  const legend = 26 * Math.ceil((run.activities.length * 200) / Math.max(200, node.clientWidth));
  const height = Math.min(1400, legend + 90 + rows * Math.max(9, Math.min(30, 900 / rows)));
  const every = Math.ceil(rows / 40), ticks = run.rows.map((_, at) => at).filter((at) => at % every === 0);
  const axis = { automargin: true, gridcolor: "#E1E4E8", linecolor: "#6E7781", tickcolor: "#6E7781", ticks: "outside", zeroline: false };
  const layout = Paceline.layout({
    height, images, barmode: "overlay", bargap: 0.15, font: { color: "#24292F", size: 13, family: "system-ui, sans-serif" }, margin: { l: 10, r: 40, t: 10, b: 10 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: "zoom", hovermode: "closest",
    legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: { size: 12 }, itemclick: false, itemdoubleclick: false },
    xaxis: Object.assign({}, axis, { title: { text: "time since the start, s", standoff: 8 }, range: [from, to] }),
    yaxis: Object.assign({}, axis, { title: { text: "rank", standoff: 8 }, range: [rows - 0.5, -0.5], tickvals: ticks, ticktext: ticks.map((at) => run.rows[at]), showgrid: false, fixedrange: true }),
  }, node);
  node.style.height = height + "px";
  const words = found
    ? `${found.length.toLocaleString("en")} operations between ${from.toPrecision(4)} and ${to.toPrecision(4)} s; each bar is one operation.`
    : `Between ${from.toPrecision(4)} and ${to.toPrecision(4)} s: each cell is the activity that took most of ${Paceline.seconds(run.wall_s / run.bins)}, paler if it took less than all of it. Zoom in to see single operations.`;
  document.getElementById(id + "-shown").textContent = [words, run.words].filter(Boolean).join(" ");
  Plotly.react(node, Paceline.themed(traces), layout, Paceline.config(node));
  if (!node.dataset.listening) {
    node.dataset.listening = "yes";
    node.on("plotly_relayout", (event) => Paceline.zoomed(id, event));
  }
};

// Draws again after the reader has zoomed with the pointer.
Paceline.zoomed = function (id, event) {
  const run = Paceline.timelineRun(id);
  if ("xaxis.range[0]" in event) Paceline.showRange(id, event["xaxis.range[0]"], event["xaxis.range[1]"]);
  else if (event["xaxis.autorange"] || event["xaxis.range"]) {
    const [from, to] = event["xaxis.range"] || [0, run.wall_s];
    Paceline.showRange(id, from, to);
  }
};

Paceline.showRange = function (id, from, to) {
  const run = Paceline.timelineRun(id);
  const least = run.wall_s * 1e-7, length = Math.min(run.wall_s, Math.max(least, to - from));
  const begin = Math.min(Math.max(0, from), run.wall_s - length);
  run.range = [begin, begin + length];
  Paceline.drawTimeline(id);
};

// Returns a range around a position that has about `count` operations: of the stretch that contains it.
Paceline.rangeAt = function (run, place, count) {
  const stretches = run.stretches;
  const [begin, end] = stretches[place === "start" ? 0 : place === "end" ? stretches.length - 1 : Math.floor(stretches.length / 2)];
  const starts = run.spans.start.filter((one) => one >= begin && one <= end).sort();
  if (starts.length <= count) return [begin, end];
  const first = place === "start" ? 0 : place === "end" ? starts.length - count : Math.floor((starts.length - count) / 2);
  return [place === "start" ? begin : starts[first], place === "end" ? end : starts[first + count]];
};

Paceline.moveTimeline = function (id, move) {
  if (!Paceline.data) return;
  const run = Paceline.timelineRun(id);
  const [from, to] = run.range, length = to - from, middle = (from + to) / 2;
  const few = Math.min(Paceline.MOST_BARS / 2, Math.max(120, 24 * run.rows.length));
  const range = {
    all: () => [0, run.wall_s], start: () => Paceline.rangeAt(run, "start", few), middle: () => Paceline.rangeAt(run, "middle", few),
    end: () => Paceline.rangeAt(run, "end", few), in: () => [middle - length / 4, middle + length / 4], out: () => [middle - length, middle + length],
    earlier: () => [from - length / 2, to - length / 2], later: () => [from + length / 2, to + length / 2],
  }[move]();
  Paceline.showRange(id, ...range);
};
