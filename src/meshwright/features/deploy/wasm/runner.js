// Runs a module of IREE's kernels by the host program beside it; needs nothing else.
// It runs in browsers, and by serve.mjs in Node.js.

const LOCAL_BYTES = 1 << 18; // scratch memory of a workgroup
const PAGE = 65536;
const ALIGNMENT = 64;

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array,
  int32: Int32Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  bool: Uint8Array, int64: BigInt64Array, uint64: BigUint64Array,
};

const COMPARE = [
  (a, b) => a === b, (a, b) => a !== b, (a, b) => a < b, (a, b) => a <= b,
  (a, b) => a > b, (a, b) => a >= b, (a, b) => a < b, (a, b) => a <= b,
  (a, b) => a > b, (a, b) => a >= b,
];

const NUMBERS = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b,
  div: (a, b) => Math.trunc(a / b), rem: (a, b) => a % b,
  ceil_div: (a, b) => Math.ceil(a / b), min: Math.min, max: Math.max,
  and: (a, b) => Number(BigInt(a) & BigInt(b)), or: (a, b) => Number(BigInt(a) | BigInt(b)),
  xor: (a, b) => Number(BigInt(a) ^ BigInt(b)),
  align: (a, b) => Math.ceil(a / b) * b,
};

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** A part of the module's memory. owner: the allocation that it lies in. */
class Span {
  constructor(at, size, owner) {
    Object.assign(this, { at, size, owner: owner ?? this });
  }
}

/** The module's memory from the end of its own data on; freed parts are used again. */
class Heap {
  constructor(memory, base) {
    this.memory = memory;
    this.top = Math.ceil(base / ALIGNMENT) * ALIGNMENT;
    this.free = new Map();
    this.used = new Set();
  }

  allocate(size) {
    const room = Math.max(ALIGNMENT, Math.ceil(size / ALIGNMENT) * ALIGNMENT);
    let at = this.free.get(room)?.pop();
    if (at === undefined) {
      at = this.top;
      this.top += room;
      const missing = this.top - this.memory.buffer.byteLength;
      if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE));
    }
    const span = new Span(at, size);
    span.room = room;
    this.used.add(span);
    return span;
  }

  release(span) {
    this.used.delete(span);
    if (!this.free.has(span.room)) this.free.set(span.room, []);
    this.free.get(span.room).push(span.at);
  }

  keepOnly(live) {
    for (const span of this.used) if (!live.has(span)) this.release(span);
  }
}

/** The response with a file that lies beside this one. */
async function fetched(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer;
}

/** A model: `run(inputs)` takes typed arrays by name, and returns outputs and seconds. */
export class Model {
  /** get: a function from a file's name to a response with its content. */
  static async load(get = fetched) {
    const [about, host, code, weights] = await Promise.all([
      get("model.json").then((r) => r.json()), get("host.json").then((r) => r.json()),
      get("model.wasm").then((r) => r.arrayBuffer()),
      get("weights.bin").then((r) => r.arrayBuffer()),
    ]);
    const { instance } = await WebAssembly.instantiate(code, {});
    return new Model(about, host, instance, new Uint8Array(weights), code.byteLength);
  }

  constructor(about, host, instance, weights, codeBytes) {
    const { memory, __heap_base: base } = instance.exports;
    Object.assign(this, { about, host, memory });
    this.kernels = this.findKernels(instance.exports);
    this.size = codeBytes + weights.byteLength;
    this.heap = new Heap(memory, base?.value ?? 0);
    this.globals = new Map();
    this.kept = new Set();
    this.environment = this.keep(128);
    this.bytes().fill(0, this.environment.at, this.environment.at + 128);
    this.state = this.keep(64);
    this.group = this.keep(64);
    this.local = this.keep(LOCAL_BYTES);
    this.lists = this.keep(4096);
    this.fixed = host.inputs.map((place) => {
      if (place.name !== undefined) return undefined;
      const span = this.keep(place.bytes);
      this.bytes().set(weights.subarray(place.offset, place.offset + place.bytes), span.at);
      return span;
    });
    for (const blocks of host.initializers) {
      this.interpret(blocks, []);
      for (const value of this.globals.values()) if (value?.owner) this.kept.add(value.owner);
    }
  }

  /**
   * The functions of the host program's kernels, by their numbers.
   *
   * IREE's `executable_library.h` defines a struct with the kernels' functions and names.
   * The fields between these two differ between releases, so that the names are searched
   * for.
   */
  findKernels(exports) {
    const wanted = this.host.kernels;
    if (!wanted.length) return [];
    const query = Object.keys(exports).find((name) => name.endsWith("_library_query"));
    const view = this.view();
    const word = (at) => (at + 4 <= view.byteLength ? view.getUint32(at, true) : 0);
    const text = (at) => {
      const rest = this.bytes().subarray(at);
      return new TextDecoder().decode(rest.subarray(0, rest.indexOf(0)));
    };
    let library = 0;
    for (let version = 0; version < 64 && !library; version++) {
      library = exports[query](version, 0);
    }
    const [count, functions] = [word(library + 12), word(library + 16)];
    for (let field = library + 20; field < library + 60; field += 4) {
      const list = word(field);
      const names = Array.from({ length: list ? count : 0 }, (_, i) => text(word(list + 4 * i)));
      const places = wanted.map((name) => names.indexOf(name));
      if (!places.includes(-1)) {
        const table = exports.__indirect_function_table;
        return places.map((i) => table.get(word(functions + 4 * i)));
      }
    }
    throw new Error("this release of IREE lists the kernels of a library otherwise");
  }

  bytes() {
    return new Uint8Array(this.memory.buffer);
  }

  view() {
    return new DataView(this.memory.buffer);
  }

  keep(size) {
    const span = this.heap.allocate(size);
    this.kept.add(span);
    return span;
  }

  async run(inputs) {
    const start = performance.now();
    const given = this.about.inputs.map(({ name, dtype }) => [
      name, new Uint8Array(ARRAYS[dtype].from(inputs[name]).buffer),
    ]);
    const results = this.call(Object.fromEntries(given));
    const outputs = {};
    this.about.outputs.forEach(({ name, dtype, shape }, i) => {
      outputs[name] = { data: new ARRAYS[dtype](results[i]), dims: shape };
    });
    return { outputs, seconds: (performance.now() - start) / 1000 };
  }

  /** The outputs in order, as buffers, of inputs as bytes by name. */
  call(inputs) {
    const given = this.host.inputs.map((place, i) => {
      if (this.fixed[i]) return this.fixed[i];
      const content = inputs[place.name];
      const span = this.heap.allocate(content.length);
      this.bytes().set(content, span.at);
      return span;
    });
    const results = this.interpret(this.host.main, given);
    const buffers = results.map(({ at, size }) => this.memory.buffer.slice(at, at + size));
    this.heap.keepOnly(this.kept);
    return buffers;
  }

  /** Runs the blocks of a function; its results. */
  interpret(blocks, args) {
    let values = new Map();
    let at = 0;
    let given = args;
    for (;;) {
      const block = blocks[at];
      const next = new Map(block.live.map((id) => [id, values.get(id)]));
      block.args.forEach((id, i) => next.set(id, given[i]));
      values = next;
      if (at > 0) this.freeAllBut(values);
      for (const step of block.steps) {
        const [kind, operands, results] = step;
        const read = operands.map((id) => values.get(id));
        if (kind === "return") return read;
        if (kind === "branch") {
          [at, given] = [step[3], read];
        } else if (kind === "branch_if") {
          const [, , , first, second, count] = step;
          [at, given] = read[0]
            ? [first, read.slice(1, 1 + count)]
            : [second, read.slice(1 + count)];
        } else {
          const made = this.step(kind, read, step);
          results.forEach((id) => values.set(id, made));
        }
      }
    }
  }

  freeAllBut(values) {
    const live = new Set(this.kept);
    for (const value of values.values()) if (value?.owner) live.add(value.owner);
    this.heap.keepOnly(live);
  }

  step(kind, read, step) {
    if (kind in NUMBERS) return Number(NUMBERS[kind](...read));
    switch (kind) {
      case "constant": return step[3];
      case "same": return read[0];
      case "select": return read[0] ? read[1] : read[2];
      case "compare": return Number(COMPARE[step[3]](...read));
      case "alloc": return this.heap.allocate(read.at(-1));
      case "length": return read[0].size;
      case "subspan": case "view": {
        const [whole, offset, size] = kind === "view" || read.length === 3
          ? read : [read[0], read[2], read[3]];
        return new Span(whole.at + offset, size, whole.owner);
      }
      case "data": {
        const content = bytesOf(step[3]);
        const span = this.heap.allocate(content.length);
        this.bytes().set(content, span.at);
        return span;
      }
      case "copy": {
        const [from, , start, to, , place, size] = read;
        this.bytes().copyWithin(to.at + place, from.at + start, from.at + start + size);
        return undefined;
      }
      case "fill": return this.fill(read, step[3]);
      case "load": return this.load(read[0].at + read[2], step[3]);
      case "store": return this.store(read[1].at + read[3], read[0], step[3]);
      case "global_load": return this.globals.get(step[3]);
      case "global_store": return void this.globals.set(step[3], read[0]);
      case "check_ok":
        if (read[0]) throw new Error(`status ${read[0]}`);
        return undefined;
      case "dispatch": return this.dispatch(read, step);
      default: throw new Error(`no step ${kind}`);
    }
  }

  load(at, type) {
    const view = this.view();
    switch (type) {
      case "i1": case "i8": return view.getInt8(at);
      case "i16": return view.getInt16(at, true);
      case "i32": return view.getInt32(at, true);
      case "i64": case "index": return Number(view.getBigInt64(at, true));
      case "f32": return view.getFloat32(at, true);
      default: throw new Error(`no load of ${type}`);
    }
  }

  store(at, value, type) {
    const view = this.view();
    switch (type) {
      case "i1": case "i8": view.setInt8(at, value); return;
      case "i16": view.setInt16(at, value, true); return;
      case "i32": view.setInt32(at, value, true); return;
      case "i64": case "index": view.setBigInt64(at, BigInt(value), true); return;
      case "f32": view.setFloat32(at, value, true); return;
      default: throw new Error(`no store of ${type}`);
    }
  }

  fill([value, to, , place, size], type) {
    const width = { i1: 1, i8: 1, i16: 2, i32: 4, i64: 8, index: 8, f32: 4 }[type];
    const start = to.at + place;
    if (width === 1) {
      this.bytes().fill(value, start, start + size);
      return;
    }
    for (let at = start; at < start + size; at += width) this.store(at, value, type);
  }

  /** Calls a kernel once per workgroup, as IREE's `executable_library.h` describes it. */
  dispatch(read, [, , , kernel, numConstants, numBindings]) {
    const [x, y, z] = read;
    const constants = read.slice(3, 3 + numConstants);
    const rest = read.slice(3 + numConstants);
    const [spans, offsets, sizes] = [0, 1, 2].map((i) =>
      rest.slice(i * numBindings, (i + 1) * numBindings));
    const view = this.view();
    const [constantsAt, pointersAt] = [this.lists.at, this.lists.at + 1024];
    const sizesAt = this.lists.at + 2048;
    constants.forEach((c, i) => view.setInt32(constantsAt + 4 * i, c, true));
    spans.forEach((span, i) => {
      view.setUint32(pointersAt + 4 * i, span.at + offsets[i], true);
      view.setUint32(sizesAt + 4 * i, sizes[i], true);
    });
    const state = this.state.at;
    view.setUint32(state, 1, true);
    view.setUint32(state + 4, 1, true);
    view.setUint16(state + 8, 1, true);
    view.setUint16(state + 10, numConstants, true);
    view.setUint32(state + 12, x, true);
    view.setUint32(state + 16, y, true);
    view.setUint16(state + 20, z, true);
    view.setUint8(state + 22, 1);
    view.setUint8(state + 23, numBindings);
    view.setUint32(state + 24, constantsAt, true);
    view.setUint32(state + 28, pointersAt, true);
    view.setUint32(state + 32, sizesAt, true);
    const group = this.group.at;
    view.setUint32(group + 12, 0, true);
    view.setUint32(group + 16, this.local.at, true);
    view.setUint32(group + 20, LOCAL_BYTES, true);
    const call = this.kernels[kernel];
    for (let k = 0; k < z; k++) {
      for (let j = 0; j < y; j++) {
        for (let i = 0; i < x; i++) {
          view.setUint32(group, i, true);
          view.setUint32(group + 4, j, true);
          view.setUint16(group + 8, k, true);
          const status = call(this.environment.at, state, group);
          if (status) throw new Error(`kernel ${kernel} failed with status ${status}`);
        }
      }
    }
  }
}
