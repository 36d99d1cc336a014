"use strict";
// Tabs, theme, choices, wide tables and printing.
(function () {
  const root = document.documentElement, themeButton = document.getElementById("theme");
  const tabs = [...document.querySelectorAll("[role=tab]")], panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const chartsIn = (panel) => [...panel.querySelectorAll(".chart, .timeline")].map((node) => node.id);

  function setTheme(theme) {
    root.dataset.theme = theme;
    themeButton.textContent = theme === "dark" ? "Light colours" : "Dark colours";
    redraw();
  }

  function redraw() {
    panels.filter((panel) => !panel.hidden).flatMap(chartsIn).forEach((id) => Paceline.draw(id));
    panels.filter((panel) => panel.hidden).flatMap(chartsIn).forEach((id) => Paceline.drawn.delete(id));
  }

  function select(number, focus) {
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", at === number ? "true" : "false");
      tab.tabIndex = at === number ? 0 : -1;
      panels[at].hidden = at !== number;
    });
    if (focus) tabs[number].focus();
    chartsIn(panels[number]).filter((id) => !Paceline.drawn.has(id)).forEach((id) => Paceline.draw(id));
  }

  function selectNamed(name) {
    const number = panels.findIndex((panel) => panel.id === name);
    if (number >= 0) select(number, false);
  }

  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => {
      select(at, false);
      history.replaceState(null, "", "#" + panels[at].id);
    });
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select((to + tabs.length) % tabs.length, true);
    });
  });

  document.querySelectorAll("select[data-for]").forEach((choice) =>
    choice.addEventListener("change", () => {
      Paceline.chosen[choice.dataset.for] = Number(choice.value);
      Paceline.draw(choice.dataset.for);
    }));
  document.querySelectorAll("[data-move]").forEach((button) =>
    button.addEventListener("click", () => Paceline.moveTimeline(button.parentNode.dataset.for, button.dataset.move)));

  // Printing shows every section, in light colours.
  let before = null;
  function expand() {
    if (before) return;
    const closed = [...document.querySelectorAll("details:not([open])")];
    before = { theme: root.dataset.theme, number: tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true"), closed };
    closed.forEach((one) => { one.open = true; });
    panels.forEach((panel) => { panel.hidden = false; });
    root.dataset.theme = "light";
    redraw();
  }
  function collapse() {
    if (!before) return;
    const { theme, number, closed } = before;
    closed.forEach((one) => { one.open = false; });
    before = null;
    root.dataset.theme = theme;
    select(number, false);
    redraw();
  }
  window.addEventListener("beforeprint", expand);
  window.addEventListener("afterprint", collapse);
  document.getElementById("print").addEventListener("click", () => { expand(); setTimeout(() => window.print(), 300); });

  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
  });

  // A table, picture or text that is wider than the page says so, and has a shadow at each end that continues.
  function markOverflow(box) {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("left", box.scrollLeft > 1);
    box.classList.toggle("right", hidden - box.scrollLeft > 1);
    if (box.nextElementSibling) box.nextElementSibling.hidden = hidden <= 1;
  }
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => markOverflow(entry.target)));
  document.querySelectorAll(".scroll").forEach((box) => {
    sizes.observe(box);
    box.addEventListener("scroll", () => markOverflow(box), { passive: true });
  });

  const wanted = window.matchMedia("(prefers-color-scheme: dark)");
  wanted.addEventListener("change", () => setTheme(wanted.matches ? "dark" : "light"));
  themeButton.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  document.body.classList.add("tabbed");
  panels.forEach((panel, at) => { panel.hidden = at !== 0; });
  root.dataset.theme = wanted.matches ? "dark" : "light";
  selectNamed(location.hash.slice(1));
  window.addEventListener("hashchange", () => selectNamed(location.hash.slice(1)));
  setTheme(root.dataset.theme);
  Paceline.load().then(redraw, () => { document.getElementById("not-unpacked").hidden = false; })
    .finally(() => { root.dataset.loaded = "yes"; });
  if (location.hash) window.addEventListener("load", () => setTimeout(() => window.scrollTo(0, 0), 0));
})();
