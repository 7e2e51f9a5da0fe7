"use strict";
// Reading values off a chart: pointer, touch, or arrow keys; legend buttons hide a series.
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const svg = figure.querySelector("svg.chart");
  const data = JSON.parse(svg.dataset.readout);
  const guide = svg.querySelector(".guide");
  const output = figure.querySelector("output.readout");
  const hidden = new Set();
  let at = -1;

  function show(index) {
    at = Math.max(0, Math.min(data.px.length - 1, index));
    guide.setAttribute("x1", data.px[at]);
    guide.setAttribute("x2", data.px[at]);
    const words = data.series
      .filter((_, i) => !hidden.has(i))
      .map((series) => series.name + " " + series.y[at]);
    output.textContent = data.label + " = " + data.x[at] + ": " + words.join(", ");
  }

  function nearest(event) {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    let best = 0;
    data.px.forEach((place, i) => {
      if (Math.abs(place - x) < Math.abs(data.px[best] - x)) best = i;
    });
    show(best);
  }

  svg.addEventListener("pointermove", nearest);
  svg.addEventListener("pointerdown", nearest);
  svg.addEventListener("focus", () => { if (at < 0) show(0); });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 5, PageUp: -5 }[event.key];
    if (step) show(at + step);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(data.px.length - 1);
    else return;
    event.preventDefault();
  });
  for (const button of figure.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const index = Number(button.dataset.series);
      const off = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!off));
      if (off) hidden.add(index); else hidden.delete(index);
      svg.querySelector('[data-series="' + index + '"]').classList.toggle("off", off);
      if (at >= 0) show(at);
    });
  }
}

// Samples: a slider walks through the values of epsilon.
for (const slider of document.querySelectorAll("input[data-samples]")) {
  const names = JSON.parse(slider.dataset.samples);
  const place = document.getElementById("samples-epsilon");
  function choose() {
    const name = names[Number(slider.value)];
    place.textContent = name;
    slider.setAttribute("aria-valuetext", name);
    for (const block of document.querySelectorAll("[data-epsilon]")) {
      block.hidden = block.dataset.epsilon !== name;
    }
  }
  slider.addEventListener("input", choose);
  choose();
}

// On paper every table that fits is open.
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([data-long])")) part.open = true;
});
document.documentElement.dataset.ready = "true";
