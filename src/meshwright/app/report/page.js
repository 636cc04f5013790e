"use strict";
// Tooltips, and one window of time that all figures over time share; `timeline.py` draws them.

const lines = JSON.parse(document.getElementById("tips").textContent);
const tip = document.getElementById("tip");

function showTip(event) {
  const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
  tip.hidden = !mark || dragged !== null;
  if (tip.hidden) return;
  tip.replaceChildren(...mark.dataset.tip.split(" ").map((number) => {
    const line = document.createElement("div");
    line.textContent = lines[Number(number)];
    return line;
  }));
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 16, below = event.clientY + 18;
  const left = right + width > innerWidth ? event.clientX - width - 12 : right;
  const top = below + height > innerHeight ? event.clientY - height - 12 : below;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

const figures = [...document.querySelectorAll(".timed")];
let view = { start: 0, length: 1 }; // shares of the step
let dragged = null;

function seconds(value, step) {
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  if (value < step / 2) return "0 s";
  const [size, unit] = units.find(([u]) => value >= 0.9995 * u) || units[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(value / size).toFixed(digits)} ${unit}`;
}

function drawTicks(figure, { end, left, width, bottom }) {
  const length = end * view.length, first = end * view.start;
  const size = 10 ** Math.floor(Math.log10(length / 8));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= 0.999 * length / 8);
  const texts = [];
  for (let i = Math.ceil(first / step - 1e-9); i * step <= first + length * 1.000001; i++) {
    const x = left + width * (i * step - first) / length;
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("x", Math.min(x, left + width - 14));
    text.setAttribute("y", bottom + 18);
    text.textContent = seconds(i * step, step);
    texts.push(text);
  }
  figure.querySelector(".ticks").replaceChildren(...texts);
}

function drawNames(figure, { left, width }) {
  const group = figure.querySelector(".names");
  if (!group) return;
  const texts = [];
  for (const rect of figure.querySelectorAll("rect[data-name]:not(.k-region)")) {
    const from = Math.max(0, (rect.x.baseVal.value / width - view.start) / view.length);
    const to = Math.min(1, ((rect.x.baseVal.value + rect.width.baseVal.value) / width - view.start) / view.length);
    const room = Math.floor(((to - from) * width - 8) / 6.2);
    if (room < 4 || texts.length > 200) continue;
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    text.setAttribute("x", left + from * width + 5);
    text.setAttribute("y", rect.y.baseVal.value + rect.height.baseVal.value / 2 + 4);
    text.setAttribute("class", rect.getAttribute("class").replace("k-", "on-"));
    const name = rect.dataset.name;
    text.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
    texts.push(text);
  }
  group.replaceChildren(...texts);
}

function draw() {
  for (const figure of figures) {
    const place = Object.fromEntries(Object.entries(figure.dataset).map(([k, v]) => [k, Number(v)]));
    const scale = 1 / view.length, shift = place.left - place.width * view.start * scale;
    figure.querySelector(".zoom").setAttribute("transform", `translate(${shift} 0) scale(${scale} 1)`);
    drawTicks(figure, place);
    drawNames(figure, place);
  }
}

function move(start, length) {
  length = Math.min(1, Math.max(1e-6, length));
  view = { start: Math.min(1 - length, Math.max(0, start)), length };
  draw();
}

function shareAt(figure, clientX) {
  const box = figure.getBoundingClientRect(), scale = box.width / figure.viewBox.baseVal.width;
  return ((clientX - box.left) / scale - figure.dataset.left) / figure.dataset.width;
}

for (const figure of figures) {
  figure.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = Math.min(1, Math.max(0, shareAt(figure, event.clientX)));
    const length = Math.min(1, view.length * Math.exp(event.deltaY * 0.0015));
    move(view.start + at * (view.length - length), length);
  }, { passive: false });
  figure.addEventListener("pointerdown", (event) => {
    dragged = { figure, from: shareAt(figure, event.clientX), start: view.start };
    tip.hidden = true;
  });
  figure.addEventListener("dblclick", () => move(0, 1));
}
addEventListener("pointermove", (event) => {
  if (dragged) move(dragged.start - (shareAt(dragged.figure, event.clientX) - dragged.from) * view.length, view.length);
});
addEventListener("pointerup", () => { dragged = null; });
document.addEventListener("mousemove", showTip);
document.addEventListener("mouseleave", () => { tip.hidden = true; });
draw();
