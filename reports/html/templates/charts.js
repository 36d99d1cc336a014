"use strict";
// Colours of the theme, and drawing of charts. A chart is drawn when its section is first shown, since plotly needs its width.
const Paceline = { data: null, drawn: new Set(), chosen: {} };

// Returns the text of a part of the page that is compressed by gzip and written in base64.
Paceline.unpacked = async function (id) {
  const node = document.getElementById(id), packed = atob(node.textContent);
  node.remove();
  const bytes = new Blob([Uint8Array.from(packed, (one) => one.charCodeAt(0))]);
  return new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

// Makes plotly.js and the data of all charts ready; until then `Paceline.draw` draws nothing.
Paceline.load = async function () {
  const [code, data] = await Promise.all(["plotly", "data"].map(Paceline.unpacked));
  const script = document.createElement("script");
  script.textContent = code;
  document.head.append(script);
  Paceline.data = JSON.parse(data);
};

Paceline.isDark = () => document.documentElement.dataset.theme === "dark";

// Returns a copy of a figure in which every colour of the light theme is replaced by its partner of the dark one.
Paceline.themed = function (value) {
  if (!Paceline.isDark()) return structuredClone(value);
  if (typeof value === "string") return Paceline.data.dark[value] || value;
  if (Array.isArray(value)) return value.map(Paceline.themed);
  if (value && typeof value === "object" && !ArrayBuffer.isView(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, Paceline.themed(one)]));
  }
  return value;
};

// Buttons for the pointer, without the one that would send a chart elsewhere; not on narrow screens, where they hide the legend.
Paceline.config = (node) => ({
  responsive: true, displaylogo: false, displayModeBar: node.clientWidth >= 520,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
});

// The page's own settings of a layout: colours of hover labels, smaller texts and fewer buttons on narrow screens.
Paceline.layout = function (layout, node) {
  const style = getComputedStyle(document.documentElement);
  const narrow = node.clientWidth < 520;
  const made = Paceline.themed(layout);
  made.hoverlabel = Object.assign({}, made.hoverlabel, {
    bgcolor: style.getPropertyValue("--panel").trim(), bordercolor: style.getPropertyValue("--faint").trim(),
    font: { color: style.getPropertyValue("--ink").trim() },
  });
  made.modebar = { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: style.getPropertyValue("--faint").trim(), activecolor: style.getPropertyValue("--ink").trim() };
  made.dragmode = narrow ? false : made.dragmode;
  if (narrow) made.margin = Object.assign({}, made.margin, { l: 4, r: made.margin.r > 40 ? made.margin.r : 14 });
  if (narrow) made.font = Object.assign({}, made.font, { size: 11 });
  if (narrow && made.legend) made.legend.font = Object.assign({}, made.legend.font, { size: 11 });
  return made;
};

Paceline.legendNames = function (id) {
  const chart = Paceline.data.charts[id];
  if (!chart) return [];
  return chart.variants[Paceline.chosen[id] || 0].figure.data.filter((one) => one.showlegend !== false && one.name).map((one) => one.name);
};

// The height of a chart with its legend: lines of the legend beyond the first one make the chart taller.
Paceline.heightOf = function (id, node) {
  const names = Paceline.legendNames(id);
  if (names.length < 2) return Paceline.data.charts[id].height;
  const longest = Math.max(...names.map((name) => name.length));
  const columns = Math.max(1, Math.floor((node.clientWidth - 60) / (52 + 6.6 * longest)));
  return Paceline.data.charts[id].height + 19 * (Math.ceil(names.length / columns) - 1);
};

Paceline.drawChart = function (id) {
  const node = document.getElementById(id);
  const figure = Paceline.data.charts[id].variants[Paceline.chosen[id] || 0].figure;
  const height = Paceline.heightOf(id, node);
  node.style.height = height + "px";
  const layout = Object.assign(Paceline.layout(figure.layout, node), { height, autosize: true });
  Plotly.react(node, Paceline.themed(figure.data), layout, Paceline.config(node));
};

Paceline.draw = function (id) {
  if (!Paceline.data) return;
  Paceline.drawn.add(id);
  if (id in Paceline.data.charts) Paceline.drawChart(id);
  else Paceline.drawTimeline(id);
};
