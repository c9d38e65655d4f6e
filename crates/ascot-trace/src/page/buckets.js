// Draws the buckets of bowties: at a chosen turn, beside the staircase; and of every stream over time.
//
// Invariant: what a chart shows, the table of the streams has as numbers.
'use strict';
(() => {
const element = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const sum = (values) => values.reduce((all, value) => all + value, 0);

// A canvas of the size at which it is shown, cleared.
const prepared = (canvas) => {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = Math.max(100, Math.round(box.width * ratio));
  canvas.height = Math.max(60, Math.round(box.height * ratio));
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.fillStyle = colour('--ground');
  context.fillRect(0, 0, canvas.width, canvas.height);
  return context;
};

class Buckets {
  constructor(bowties, number) {
    this.bowties = bowties;
    this.number = number;
    this.choice = element(`bowtie-${number}`);
    this.slider = element(`turn-${number}`);
    this.choice.addEventListener('change', () => this.chosen());
    this.slider.addEventListener('input', () => this.draw());
    this.chosen();
  }

  get bowtie() { return this.bowties[+this.choice.value]; }
  get turn() { return this.bowtie.turns[+this.slider.value]; }
  name(stream) {
    const {inputs} = this.bowtie;
    return stream < inputs ? `input ${stream}` : `output ${stream - inputs}`;
  }

  // Another bowtie: the turn in the middle of its time is chosen, which is far from the begin and from the end.
  chosen() {
    const {turns} = this.bowtie;
    this.slider.max = turns.length - 1;
    this.slider.value = turns.length >> 1;
    const streams = turns[0].bytes.map((_, stream) => turns.map((turn) => turn.bytes[stream]));
    this.most = Math.max(1, ...turns.map((turn) => Math.max(...turn.bytes)));
    this.ranges = streams.map((values) => ({
      least: values.reduce((a, b) => Math.min(a, b)), mean: sum(values) / values.length,
      most: values.reduce((a, b) => Math.max(a, b)),
    }));
    element(`shades-${this.number}`).textContent =
      `Buckets over time, a row for each stream: the full colour is ${bytesText(this.most)}, none is empty; ` +
      'the line is the chosen turn';
    this.draw();
  }

  // Each side: its streams, the fullest first, and its staircase.
  sides() {
    const {inputs, staircases} = this.bowtie, {bytes} = this.turn;
    return [[0, inputs], [inputs, bytes.length]].map(([from, to], side) => {
      const streams = Array.from({length: to - from}, (_, at) => from + at);
      streams.sort((a, b) => bytes[b] - bytes[a] || a - b);
      const which = this.turn.staircases[side];
      return {streams, sizes: which === null ? null : staircases[which], distance: this.turn.distances[side]};
    }).filter((side) => side.streams.length);
  }

  draw() {
    const sides = this.sides();
    this.drawStaircase(sides);
    this.drawShades();
    this.fillTable(sides);
    const {turns, every} = this.bowtie, at = +this.slider.value, turn = this.turn;
    const distances = sides.filter((side) => side.distance !== null).map((side) =>
      `${side.streams[0] < this.bowtie.inputs ? 'inputs' : 'outputs'} are ` +
      `${(side.distance * 100).toFixed(0)}% from the staircase`);
    const next = turn.next === null ? 'nothing moves next' : `${this.name(turn.next)} moves next`;
    const text = `Turn ${at * every + 1} at ${timeText(turn.time_ns)}: ${bytesText(sum(turn.bytes))} in all buckets, ` +
      [next, ...distances].join(', ');
    element(`buckets-state-${this.number}`).textContent = text;
    this.slider.setAttribute('aria-valuetext', `turn ${at * every + 1} at ${timeText(turn.time_ns)}`);
  }

  drawStaircase(sides) {
    const context = prepared(element(`staircase-${this.number}`));
    const {width, height} = context.canvas, {bytes} = this.turn, ratio = window.devicePixelRatio || 1;
    const top = 18 * ratio, sizes = sides.flatMap((side) => side.sizes || []);
    const most = Math.max(this.most, ...sizes);
    const row = (value) => height - (height - top) * value / most;
    const gap = sides.length > 1 ? 12 * ratio : 0;
    const step = (width - gap) / sum(sides.map((side) => side.streams.length));
    let left = 0;
    for (const {streams, sizes} of sides) {
      context.fillStyle = colour(streams[0] < this.bowtie.inputs ? '--read' : '--write');
      streams.forEach((stream, at) => {
        const y = row(bytes[stream]);
        context.fillRect(left + at * step, y, Math.max(1, step - (step > 3 ? 1 : 0)), height - y);
      });
      if (sizes) {
        context.strokeStyle = colour('--text');
        context.lineWidth = 2 * ratio;
        context.beginPath();
        sizes.forEach((size, at) => {
          context.lineTo(left + at * step, row(size));
          context.lineTo(left + (at + 1) * step, row(size));
        });
        context.stroke();
      }
      left += streams.length * step + gap;
    }
    context.fillStyle = colour('--soft');
    context.font = `${11 * ratio}px system-ui,sans-serif`;
    context.fillText(bytesText(most), 2 * ratio, 11 * ratio);
  }

  drawShades() {
    const context = prepared(element(`shades-of-${this.number}`));
    const {width, height} = context.canvas, {turns, inputs} = this.bowtie, count = turns[0].bytes.length;
    const end = Math.max(1, turns[turns.length - 1].time_ns - turns[0].time_ns);
    const column = (turn) => (turn.time_ns - turns[0].time_ns) / end * width;
    const rows = Math.min(height, count);
    turns.forEach((turn, at) => {
      const from = column(turn), to = at + 1 < turns.length ? column(turns[at + 1]) : width;
      for (let row = 0; row < rows; row++) {
        // Where streams outnumber rows, a row shows the fullest of its streams.
        const first = Math.floor(row * count / rows), last = Math.floor((row + 1) * count / rows);
        let bytes = 0;
        for (let stream = first; stream < last; stream++) bytes = Math.max(bytes, turn.bytes[stream]);
        context.globalAlpha = bytes / this.most;
        context.fillStyle = colour(first < inputs ? '--read' : '--write');
        context.fillRect(from, row * height / rows, Math.max(1, to - from), height / rows);
      }
    });
    context.globalAlpha = 1;
    context.fillStyle = colour('--text');
    context.fillRect(Math.min(width - 2, column(this.turn)), 0, 2, height);
  }

  fillTable(sides) {
    const rows = sides.flatMap(({streams, sizes}) => streams.map((stream, place) => {
      const {least, mean, most} = this.ranges[stream];
      const size = sizes && place < sizes.length ? bytesText(sizes[place]) : '';
      const cells = [this.name(stream), bytesText(this.turn.bytes[stream]), place + 1, size, bytesText(least),
        bytesText(mean), bytesText(most)];
      const row = document.createElement('tr');
      cells.forEach((text, at) => {
        const cell = document.createElement(at ? 'td' : 'th');
        if (!at) cell.scope = 'row';
        cell.textContent = text;
        row.append(cell);
      });
      return row;
    }));
    element(`streams-${this.number}`).tBodies[0].replaceChildren(...rows);
  }
}

const all = [];
for (const data of document.querySelectorAll('script[data-buckets]')) {
  all.push(new Buckets(JSON.parse(data.textContent), +data.dataset.buckets));
}
const redraw = () => all.forEach((one) => one.draw());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
window.addEventListener('resize', redraw);
// For tests.
window.bucketCharts = all;
})();
