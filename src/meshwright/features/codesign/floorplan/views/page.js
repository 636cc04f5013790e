"use strict";
// Lines from the block under the pointer to all blocks that its nets reach.

const joined = JSON.parse(document.getElementById("nets").textContent);

function middle(rect) {
  return [rect.x.baseVal.value + rect.width.baseVal.value / 2,
    rect.y.baseVal.value + rect.height.baseVal.value / 2];
}

for (const section of document.querySelectorAll("section")) {
  const rects = {};
  for (const rect of section.querySelectorAll("[data-block]")) rects[rect.dataset.block] = rect;
  const nets = section.querySelector(".nets"), line = section.querySelector(".pointed");
  section.querySelector(".chip").addEventListener("pointerover", (event) => {
    const rect = event.target.closest("[data-block]");
    if (!rect) return nets.replaceChildren();
    const from = middle(rect), others = joined[rect.dataset.block];
    nets.replaceChildren(...others.map(([block, weight]) => {
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
      mark.setAttribute("d", `M${from}L${middle(rects[block])}`);
      mark.setAttribute("stroke-width", Math.min(6, 0.5 + weight / 8));
      mark.setAttribute("stroke-opacity", 0.6);
      return mark;
    }));
    const wires = others.reduce((sum, [, weight]) => sum + weight, 0);
    const name = rect.querySelector("title").textContent;
    line.textContent = `${name}: nets to ${others.length} blocks, total weight ${wires}`;
  });
}
