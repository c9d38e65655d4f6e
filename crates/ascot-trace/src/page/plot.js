// Draws seek charts: the offset of every request against its number or its time.
//
// Invariants: a piece of a run has at least one pixel at every zoom; all charts have one view. Their scales are equal, or each chart is as
// wide and high as its own trace.
// Two levels of detail keep drawing fast. A chart of many pieces is drawn once into an overview of OVERVIEW cells, from
// which views are drawn that do not need more. Other views pass over blocks of pieces that they do not touch.
'use strict';
(() => {
const WRITES = 1, SWITCHES = 2;
const BLOCK = 1024;
const OVERVIEW = {width: 4096, height: 2048};
const MANY_PIECES = 100000;
const READ = 1, WRITE = 2;
const MARGIN = {left: 70, right: 8, top: 8, bottom: 22};
// Pixels of a request from which on it is drawn as a box of its own.
const BOX_PIXELS = 5;
// The most requests of a trace for each request of another one if all have equal scales at first.
const MAX_EQUAL = 20;
const ZOOM = 1.5, STEP = 0.2;

const numbers = new Intl.NumberFormat('en-US');
const element = (id) => document.getElementById(id);
const plural = (count, noun) => `${numbers.format(count)} ${noun}${count === 1 ? '' : 's'}`;

// ---- pieces

const fromBase64 = (text) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
};
const inflated = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// The columns of all pieces. `order` has the number of the first request of each piece, and that of all at its end.
class Pieces {
  constructor(chart) {
    const count = chart.pieces;
    this.count = count;
    this.order = new Float64Array(count + 1);
    this.y = new Float64Array(count);
    this.size = new Float64Array(count);
    this.last = new Float64Array(count);
    this.time = new Float64Array(count);
    this.span = new Float32Array(count);
    this.flags = new Uint8Array(count);
    // The place of byte 0 of each file on the vertical axis.
    this.base = new Float64Array(chart.files);
    for (const band of chart.bands) this.base[band.file] = band.start - band.low;
    this.filled = 0;
  }

  // Adds a chunk: eight columns of numbers of variable length (see pieces.rs).
  add(bytes, count) {
    let at = 0;
    const next = () => {
      let byte = bytes[at++];
      if (byte < 128) return byte;
      let value = byte & 127, factor = 128;
      do {
        byte = bytes[at++];
        value += (byte & 127) * factor;
        factor *= 128;
      } while (byte >= 128);
      return value;
    };
    // Bits for small numbers: the remainder of a division of floating-point numbers takes a third of the time of a page.
    const difference = () => {
      const value = next();
      if (value < 2 ** 30) return (value >>> 1) ^ -(value & 1);
      return value % 2 ? -(value + 1) / 2 : value / 2;
    };
    const from = this.filled, to = from + count;
    const {order, y, size, last, time, span, base} = this;
    this.flags.set(bytes.subarray(0, count), from);
    at = count;
    for (let i = from; i < to; i++) order[i + 1] = order[i] + next();
    const files = new Uint32Array(count), ends = new Float64Array(base.length);
    for (let k = 0, file = 0; k < count; k++) files[k] = file += difference();
    for (let i = from; i < to; i++) y[i] = difference();
    for (let i = from, value = 0; i < to; i++) size[i] = value += difference();
    for (let i = from; i < to; i++) last[i] = size[i] - next();
    for (let i = from, value = 0; i < to; i++) time[i] = value += difference();
    for (let i = from; i < to; i++) span[i] = next();
    if (at !== bytes.length) throw new Error('a part of the page is damaged');
    // An offset counts from the end of the piece before in its file.
    for (let i = from; i < to; i++) {
      const file = files[i - from], offset = ends[file] + y[i];
      ends[file] = offset + this.bytes(i);
      y[i] = base[file] + offset;
    }
    this.filled = to;
  }

  bytes(i) { return this.size[i] * (this.order[i + 1] - this.order[i] - 1) + this.last[i]; }

  // The ranges of blocks, so that views pass over blocks outside; the runs that begin before each block.
  index() {
    if (this.filled !== this.count) throw new Error('a part of the page is missing');
    const blocks = Math.ceil(this.count / BLOCK);
    const range = () => ({min: new Float64Array(blocks).fill(Infinity), max: new Float64Array(blocks)});
    this.times = range();
    this.ys = range();
    this.runs = new Float64Array(blocks + 1);
    for (let i = 0; i < this.count; i++) {
      const block = Math.floor(i / BLOCK), top = this.y[i] + this.bytes(i), end = this.time[i] + this.span[i];
      if (this.y[i] < this.ys.min[block]) this.ys.min[block] = this.y[i];
      if (top > this.ys.max[block]) this.ys.max[block] = top;
      if (this.time[i] < this.times.min[block]) this.times.min[block] = this.time[i];
      if (end > this.times.max[block]) this.times.max[block] = end;
      if (this.flags[i] & SWITCHES) this.runs[block + 1]++;
    }
    for (let block = 0; block < blocks; block++) this.runs[block + 1] += this.runs[block];
  }

  // Calls `each` with the ranges of pieces whose blocks touch the view.
  visible(view, byTime, each) {
    for (let from = 0, block = 0; from < this.count; from += BLOCK, block++) {
      const to = Math.min(from + BLOCK, this.count);
      const low = byTime ? this.times.min[block] : this.order[from];
      const high = byTime ? this.times.max[block] : this.order[to];
      if (low > view.x1 || high < view.x0) continue;
      if (this.ys.min[block] > view.y1 || this.ys.max[block] < view.y0) continue;
      each(from, to);
    }
  }

  // The piece of a request.
  pieceOf(request) {
    let low = 0, high = this.count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.order[middle + 1] <= request) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Runs that begin before piece `i`.
  runsBefore(i) {
    const block = Math.floor(i / BLOCK);
    let runs = this.runs[block];
    for (let k = block * BLOCK; k < i; k++) if (this.flags[k] & SWITCHES) runs++;
    return runs;
  }

  // The requests between two values of the horizontal axis, and the runs to which they belong.
  counted(view, byTime) {
    if (byTime) return this.countedByTime(view);
    const first = Math.max(0, Math.floor(view.x0)), end = Math.min(this.order[this.count], Math.ceil(view.x1));
    if (end <= first) return {requests: 0, runs: 0, first, end: first};
    const later = this.runsBefore(this.pieceOf(end - 1) + 1) - this.runsBefore(this.pieceOf(first) + 1);
    return {requests: end - first, runs: later + 1, first, end};
  }

  countedByTime(view) {
    let requests = 0, runs = 0, last = -1;
    this.visible({...view, y0: -Infinity, y1: Infinity}, true, (from, to) => {
      for (let i = from; i < to; i++) {
        if (this.time[i] > view.x1 || this.time[i] + this.span[i] < view.x0) continue;
        requests += this.order[i + 1] - this.order[i];
        if (this.flags[i] & SWITCHES || last !== i - 1) runs++;
        last = i;
      }
    });
    return {requests, runs};
  }
}

// ---- drawing

// The part of a line inside a rectangle as two values from 0 to 1; none if it lies outside (Liang and Barsky, 1984).
const clipped = (x, y, dx, dy, width, height) => {
  let from = 0, to = 1;
  for (const [step, room] of [[-dx, x], [dx, width - x], [-dy, y], [dy, height - y]]) {
    if (step === 0) {
      if (room < 0) return null;
    } else if (step < 0) {
      from = Math.max(from, room / step);
    } else {
      to = Math.min(to, room / step);
    }
  }
  return from <= to ? [from, to] : null;
};

// Marks the pieces in a mask of width x height cells; row 0 is the bottom of the view.
const paint = (mask, width, height, view, pieces, byTime, shown) => {
  const scaleX = width / (view.x1 - view.x0), scaleY = height / (view.y1 - view.y0);
  const {order, time, span, flags, y: bottom} = pieces;
  pieces.visible(view, byTime, (from, to) => {
    for (let i = from; i < to; i++) {
      const bit = flags[i] & WRITES ? WRITE : READ;
      if (!(bit & shown)) continue;
      const x = ((byTime ? time[i] : order[i]) - view.x0) * scaleX, y = (bottom[i] - view.y0) * scaleY;
      const dx = (byTime ? span[i] : order[i + 1] - order[i]) * scaleX, dy = pieces.bytes(i) * scaleY;
      if (x >= width || y >= height || x + dx < 0 || y + dy < 0) continue;
      if (dx < 1 && dy < 1) {
        if (x >= 0 && y >= 0) mask[Math.floor(y) * width + Math.floor(x)] |= bit;
        continue;
      }
      const part = clipped(x, y, dx, dy, width, height);
      if (!part) continue;
      const steps = Math.ceil(Math.max(dx, dy) * (part[1] - part[0])) || 1;
      for (let k = 0; k < steps; k++) {
        const share = part[0] + (part[1] - part[0]) * k / steps;
        const column = Math.floor(x + dx * share), row = Math.floor(y + dy * share);
        if (column >= 0 && column < width && row >= 0 && row < height) mask[row * width + column] |= bit;
      }
    }
  });
};

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (name) => {
  const hex = styleOf(name);
  const whole = hex.length === 4 ? hex.replace(/[^#]/g, '$&$&') : hex;
  return [1, 3, 5].map((at) => parseInt(whole.slice(at, at + 2), 16));
};

// A step of 1, 2 or 5 times a power of ten, not below 1: the axes count requests, bytes and nanoseconds.
const niceStep = (least) => {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
};

class Chart {
  constructor(data, number, shared) {
    this.data = data;
    this.shared = shared;
    this.canvas = element(`chart-${number}`);
    this.state = element(`state-${number}`);
    this.overviews = {};
  }

  resize() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    this.ratio = ratio;
    this.canvas.width = Math.max(200, Math.round(box.width * ratio));
    this.canvas.height = Math.max(150, Math.round(box.height * ratio));
    const scaled = Object.fromEntries(Object.entries(MARGIN).map(([side, size]) => [side, Math.round(size * ratio)]));
    this.plot = {
      left: scaled.left, top: scaled.top,
      width: this.canvas.width - scaled.left - scaled.right, height: this.canvas.height - scaled.top - scaled.bottom,
    };
  }

  // The part of the shared axes that this chart fills.
  share() {
    const {byTime, equal, duration, requests, bytes} = this.shared, {data} = this;
    if (equal) return {x: 1, y: 1};
    const x = byTime ? (data.duration_ns + 1) / duration : Math.max(1, data.requests) / requests;
    return {x, y: Math.max(1, data.height) / bytes};
  }

  get view() { return this.own(this.shared.view); }

  full() { return this.own(this.shared.full()); }

  own({x0, x1, y0, y1}) {
    const {x, y} = this.share();
    return {x0: x0 * x, x1: x1 * x, y0: y0 * y, y1: y1 * y};
  }

  // The overview of an axis, made when it is needed.
  overview(byTime) {
    const key = `${byTime ? 'time' : 'order'} ${this.shared.equal}`;
    if (!this.overviews[key]) {
      const mask = new Uint8Array(OVERVIEW.width * OVERVIEW.height);
      paint(mask, OVERVIEW.width, OVERVIEW.height, this.full(), this.pieces, byTime, READ | WRITE);
      this.overviews[key] = mask;
    }
    return this.overviews[key];
  }

  mask() {
    const {byTime, shown} = this.shared, {view} = this, {width, height} = this.plot;
    const mask = new Uint8Array(width * height), full = this.full();
    const cellX = full.x1 / OVERVIEW.width, cellY = full.y1 / OVERVIEW.height;
    const pixelX = (view.x1 - view.x0) / width, pixelY = (view.y1 - view.y0) / height;
    if (this.pieces.count < MANY_PIECES || pixelX < cellX || pixelY < cellY) {
      paint(mask, width, height, view, this.pieces, byTime, shown);
      return mask;
    }
    const cells = this.overview(byTime);
    for (let row = 0; row < OVERVIEW.height; row++) {
      const y = Math.floor((row * cellY - view.y0) / pixelY);
      if (y < 0 || y >= height) continue;
      for (let column = 0; column < OVERVIEW.width; column++) {
        const bits = cells[row * OVERVIEW.width + column] & shown;
        if (!bits) continue;
        const x = Math.floor((column * cellX - view.x0) / pixelX);
        if (x >= 0 && x < width) mask[y * width + x] |= bits;
      }
    }
    return mask;
  }

  draw() {
    if (!this.pieces) return;
    const context = this.canvas.getContext('2d', {willReadFrequently: true});
    context.fillStyle = styleOf('--ground');
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.drawBands(context);
    this.drawMarks(context);
    this.drawBoxes(context);
    this.drawAxis(context);
    this.describe();
  }

  rowOf(y) {
    const {view} = this;
    return this.plot.top + this.plot.height * (1 - (y - view.y0) / (view.y1 - view.y0));
  }

  columnOf(x) {
    const {view} = this;
    return this.plot.left + this.plot.width * (x - view.x0) / (view.x1 - view.x0);
  }

  drawBands(context) {
    const {plot, ratio} = this;
    context.font = `${11 * ratio}px system-ui,sans-serif`;
    context.textBaseline = 'middle';
    const colours = [styleOf('--ground'), styleOf('--band')], soft = styleOf('--soft');
    let labelled = Infinity;
    this.data.bands.forEach((band, number) => {
      const top = Math.max(this.rowOf(band.start + band.room), plot.top);
      const bottom = Math.min(this.rowOf(band.start), plot.top + plot.height);
      if (bottom <= top) return;
      context.fillStyle = colours[number % 2];
      context.fillRect(plot.left, top, plot.width, bottom - top);
      const middle = (top + bottom) / 2;
      if (bottom - top < 12 * ratio || labelled - middle < 12 * ratio) return;
      labelled = middle;
      context.fillStyle = soft;
      context.textAlign = 'left';
      const name = fitted(context, band.path.split('/').pop(), plot.width / 2);
      context.fillText(name, plot.left + 4 * ratio, middle);
      this.drawOffsets(context, band, top, bottom);
    });
  }

  // Offsets of a file on the vertical axis.
  drawOffsets(context, band, top, bottom) {
    const {view, plot, ratio} = this;
    const step = niceStep((view.y1 - view.y0) / plot.height * 40 * ratio);
    context.textAlign = 'right';
    const low = Math.max(band.low, band.low + view.y0 - band.start);
    const high = Math.min(band.high, band.low + view.y1 - band.start);
    for (let offset = Math.ceil(low / step) * step; offset <= high; offset += step) {
      const row = this.rowOf(band.start + offset - band.low);
      if (row < top + 6 * ratio || row > bottom) continue;
      context.fillText(bytesText(offset), plot.left - 4 * ratio, row, plot.left - 6 * ratio);
    }
  }

  drawMarks(context) {
    const {plot, ratio} = this, mask = this.mask();
    const image = context.getImageData(plot.left, plot.top, plot.width, plot.height);
    const colours = [null, colour('--read'), colour('--write'), colour('--both')];
    const reach = Math.max(1, Math.round(ratio));
    const put = (column, row, rgb) => {
      if (column < 0 || row < 0 || column >= plot.width || row >= plot.height) return;
      const at = (row * plot.width + column) * 4;
      for (let k = 0; k < 3; k++) image.data[at + k] = rgb[k];
    };
    for (const bit of [READ, WRITE, READ | WRITE]) {
      // Reads are flat and writes upright; the pixel of both has a colour of its own.
      const along = bit === (READ | WRITE) ? 0 : reach;
      for (let at = 0; at < mask.length; at++) {
        if ((mask[at] & bit) !== bit) continue;
        const column = at % plot.width, row = plot.height - 1 - Math.floor(at / plot.width);
        for (let k = -along; k <= along; k++) {
          put(column + (bit === READ ? k : 0), row + (bit === WRITE ? k : 0), colours[bit]);
        }
      }
    }
    context.putImageData(image, plot.left, plot.top);
  }

  // Single requests as boxes, where they are wide enough: reads hollow, writes filled.
  drawBoxes(context) {
    const {byTime, shown} = this.shared, {view, plot, ratio, pieces} = this;
    const width = plot.width / (view.x1 - view.x0);
    if (byTime || width < BOX_PIXELS * ratio || pieces.count === 0) return;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.lineWidth = ratio;
    const colours = [styleOf('--read'), styleOf('--write')];
    const first = Math.max(0, Math.floor(view.x0)), end = Math.min(Math.ceil(view.x1), pieces.order[pieces.count]);
    let piece = pieces.pieceOf(first);
    for (let request = first; request < end; request++) {
      while (pieces.order[piece + 1] <= request) piece++;
      const writes = pieces.flags[piece] & WRITES;
      if (!((writes ? WRITE : READ) & shown)) continue;
      const low = pieces.y[piece] + (request - pieces.order[piece]) * pieces.size[piece];
      const bytes = request + 1 === pieces.order[piece + 1] ? pieces.last[piece] : pieces.size[piece];
      const bottom = this.rowOf(low), top = Math.min(this.rowOf(low + bytes), bottom - 3 * ratio);
      const box = [this.columnOf(request) + ratio, top, width - 2 * ratio, bottom - top];
      context.fillStyle = context.strokeStyle = colours[writes];
      if (writes) context.fillRect(...box); else context.strokeRect(...box);
    }
    context.restore();
  }

  drawAxis(context) {
    const {view, plot, ratio} = this, {byTime} = this.shared;
    context.strokeStyle = styleOf('--line');
    context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
    context.fillStyle = styleOf('--soft');
    context.textAlign = 'center';
    const step = niceStep((view.x1 - view.x0) / plot.width * 110 * ratio);
    for (let x = Math.ceil(view.x0 / step) * step; x <= view.x1; x += step) {
      const text = byTime ? timeText(x) : numbers.format(x);
      const inside = context.canvas.width - context.measureText(text).width / 2;
      context.fillText(text, Math.min(this.columnOf(x), inside), plot.top + plot.height + 12 * ratio);
    }
  }

  describe() {
    const {byTime} = this.shared, {view, plot, data} = this;
    const {requests, runs, first, end} = this.pieces.counted(view, byTime);
    const range = byTime
      ? `Time ${timeText(view.x0)} to ${timeText(view.x1)} of ${timeText(data.duration_ns)}`
      : `Requests ${numbers.format(Math.min(first + 1, end))} to ${numbers.format(end)}`;
    const column = byTime
      ? `${plural(+(requests / plot.width).toPrecision(3), 'request')} on average`
      : `${plural(Math.max(1, Math.ceil((view.x1 - view.x0) / plot.width)), 'request')} at most`;
    this.state.textContent = `${range}: ${numbers.format(requests)} of ${plural(data.requests, 'request')}, ` +
      `${plural(runs, 'run')}, at whatever offset. A column of pixels stands for ${column}.`;
  }
}

// ---- the view that all charts share

// Places the bands of a chart one above the other; returns their height. A small file has room for its name at the
// scale of all: its band is longer than its bytes.
const placed = (chart) => {
  const bytes = chart.bands.reduce((sum, band) => sum + band.high - band.low, 0);
  const least = bytes / (2 * Math.max(chart.bands.length, 20));
  let start = 0;
  for (const band of chart.bands) {
    band.start = start;
    band.room = Math.max(band.high - band.low, least);
    start += band.room;
  }
  return start;
};

class Shared {
  constructor(charts) {
    this.byTime = false;
    this.shown = READ | WRITE;
    this.requests = Math.max(1, ...charts.map((chart) => chart.requests));
    // A request at the last time belongs to the last column.
    this.duration = Math.max(...charts.map((chart) => chart.duration_ns)) + 1;
    charts.forEach((chart) => { chart.height = placed(chart); });
    this.bytes = Math.max(1, ...charts.map((chart) => chart.height));
    // A short trace would be a line beside a long one.
    this.equal = this.requests <= MAX_EQUAL * Math.min(...charts.map((chart) => Math.max(1, chart.requests)));
    this.view = this.full();
    this.charts = [];
    this.waiting = false;
  }

  full() { return {x0: 0, x1: this.byTime ? this.duration : this.requests, y0: 0, y1: this.bytes}; }

  // Scales one axis around a point, a share of the view: at most to the whole, at least to a few requests, bytes or
  // microseconds.
  zoom(axis, factor, at) {
    const [low, high] = axis === 'x' ? ['x0', 'x1'] : ['y0', 'y1'];
    const whole = this.full()[high], length = this.view[high] - this.view[low];
    const scaled = Math.min(whole, Math.max(axis === 'x' && this.byTime ? 1000 : 4, length * factor));
    this.view[low] += (length - scaled) * at;
    this.view[high] = this.view[low] + scaled;
    this.pan(axis, 0);
  }

  // Moves the view by a share of its length; it stays inside the whole.
  pan(axis, share) {
    const [low, high] = axis === 'x' ? ['x0', 'x1'] : ['y0', 'y1'];
    const whole = this.full()[high], length = this.view[high] - this.view[low];
    this.view[low] = Math.min(Math.max(0, this.view[low] + share * length), Math.max(0, whole - length));
    this.view[high] = this.view[low] + length;
    this.redraw();
  }

  both(factor, x = 0.5, y = 0.5) { this.zoom('x', factor, x); this.zoom('y', factor, y); }

  reset() { this.view = this.full(); this.redraw(); }

  setAxis(byTime) {
    this.byTime = byTime;
    const {x0, x1} = this.full();
    Object.assign(this.view, {x0, x1});
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.charts.forEach((chart) => chart.draw());
    });
  }
}

// ---- controls

const actions = (shared) => ({
  in: () => shared.both(1 / ZOOM), out: () => shared.both(ZOOM), reset: () => shared.reset(),
  left: () => shared.pan('x', -STEP), right: () => shared.pan('x', STEP),
  up: () => shared.pan('y', STEP), down: () => shared.pan('y', -STEP),
  inX: () => shared.zoom('x', 1 / ZOOM, 0.5), outX: () => shared.zoom('x', ZOOM, 0.5),
  inY: () => shared.zoom('y', 1 / ZOOM, 0.5), outY: () => shared.zoom('y', ZOOM, 0.5),
});

const KEYS = {'+': 'in', '=': 'in', '-': 'out', '_': 'out', '0': 'reset', Home: 'reset',
  ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down'};
const SHIFTED = {ArrowLeft: 'outX', ArrowRight: 'inX', ArrowUp: 'inY', ArrowDown: 'outY'};

const listen = (shared) => {
  const all = actions(shared);
  document.querySelectorAll('[data-do]').forEach((button) => {
    button.addEventListener('click', all[button.dataset.do]);
  });
  document.querySelectorAll('[name=axis]').forEach((radio) => {
    radio.addEventListener('change', () => shared.setAxis(radio.value === 'time'));
  });
  const equal = element('equal');
  if (equal) {
    equal.checked = shared.equal;
    equal.addEventListener('change', () => {
      shared.equal = equal.checked;
      shared.redraw();
    });
  }
  const show = () => {
    shared.shown = (element('reads').checked ? READ : 0) | (element('writes').checked ? WRITE : 0);
    shared.redraw();
  };
  element('reads').addEventListener('change', show);
  element('writes').addEventListener('change', show);
  shared.charts.forEach((chart) => listenTo(chart, shared, all));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => shared.redraw());
  addEventListener('resize', () => {
    shared.charts.forEach((chart) => chart.resize());
    shared.redraw();
  });
};

const listenTo = (chart, shared, all) => {
  const {canvas} = chart;
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = (event.shiftKey && SHIFTED[event.key]) || KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    all[action]();
  });
  // The wheel scrolls the page until the chart has the focus.
  canvas.addEventListener('wheel', (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    const {plot, ratio} = chart;
    const x = (event.offsetX * ratio - plot.left) / plot.width, y = (event.offsetY * ratio - plot.top) / plot.height;
    const factor = ZOOM ** Math.sign(event.deltaY || event.deltaX);
    if (event.shiftKey) shared.zoom('x', factor, x); else shared.both(factor, x, 1 - y);
  }, {passive: false});
  canvas.addEventListener('pointerdown', (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener('pointermove', (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    shared.pan('x', -event.movementX * chart.ratio / chart.plot.width);
    shared.pan('y', event.movementY * chart.ratio / chart.plot.height);
  });
};

// ---- loading

const load = async (chart, number) => {
  const pieces = new Pieces(chart.data);
  const parts = [...document.querySelectorAll(`script[data-trace="${number}"]`)].map((part) => {
    const bytes = inflated(fromBase64(part.textContent)), count = Number(part.dataset.pieces);
    part.remove();
    return {bytes, count};
  });
  for (const {bytes, count} of parts) pieces.add(await bytes, count);
  pieces.index();
  chart.pieces = pieces;
};

const start = async () => {
  const data = JSON.parse(element('charts').textContent);
  const shared = new Shared(data);
  shared.charts = data.map((one, number) => new Chart(one, number, shared));
  shared.charts.forEach((chart) => chart.resize());
  listen(shared);
  for (const [number, chart] of shared.charts.entries()) {
    try {
      await load(chart, number);
      chart.draw();
    } catch (error) {
      chart.state.textContent = `The chart cannot be drawn: ${error.message}. The tables have the counts.`;
    }
  }
  // For tests: the charts, and the time since the page was opened.
  window.seekCharts = {shared, readyMs: performance.now()};
};
start();
})();
