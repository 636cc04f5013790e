// Loads the model of this folder, and shows the panel for its kind of input.

import { startImage } from "./image.js";
import { Model } from "./runner.js";
import { startText } from "./text.js";

const byId = (id) => document.getElementById(id);

const show = (text) => {
  byId("status").textContent = text;
};

try {
  const model = await Model.load();
  const { about } = model;
  document.title = about.name;
  byId("title").textContent = about.name;
  const shape = (port) => `${port.name} ${port.dtype}[${port.shape.join(", ")}]`;
  byId("about").textContent =
    `${about.inputs.map(shape).join(", ")} → ${about.outputs.map(shape).join(", ")}; ` +
    `${(model.size / 2 ** 20).toFixed(2)} MiB, in this browser`;
  const start = about.inputs[0].shape.length === 4 ? startImage : startText;
  start(model, byId, show);
  globalThis.model = model;
  show("Ready.");
} catch (error) {
  show(`The model cannot run here: ${error.message}`);
  throw error;
}
