// Runs an ONNX model by ONNX Runtime, which lies in the folder `ort`.

import * as ort from "./ort/ort.wasm.min.mjs";

/** A model: `run(inputs)` takes typed arrays by name, and returns outputs and seconds. */
export class Model {
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
