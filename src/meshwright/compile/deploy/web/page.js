// Loads the model of this folder, and shows the panel for its kind of input.

import * as ort from "./ort/ort.wasm.min.mjs";
import { startImage } from "./image.js";
import { startText } from "./text.js";

const byId = (id) => document.getElementById(id);

/** A model: `run(inputs)` takes typed arrays by name, and returns outputs and seconds. */
class Model {
  static async load() {
    ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
    ort.env.wasm.numThreads = 1; // several need headers that plain servers do not send
    const about = await (await fetch("model.json")).json();
    const bytes = await (await fetch("model.onnx")).arrayBuffer();
    const session = await ort.InferenceSession.create(new Uint8Array(bytes), {
      executionProviders: ["wasm"],
    });
    return new Model(about, session, bytes.byteLength);
  }

  constructor(about, session, size) {
    Object.assign(this, { about, session, size });
  }

  async run(inputs) {
    const feeds = {};
    for (const port of this.about.inputs) {
      feeds[port.name] = new ort.Tensor(port.dtype, inputs[port.name], port.shape);
    }
    const start = performance.now();
    const outputs = await this.session.run(feeds);
    const seconds = (performance.now() - start) / 1000;
    return { outputs, seconds };
  }
}

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
