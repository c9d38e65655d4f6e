// Texts of sizes, times and names, for all scripts of a page.
'use strict';
const bytesText = (bytes) => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (bytes >= 1000 && unit < 5) { bytes /= 1000; unit++; }
  return `${+bytes.toPrecision(4)} ${units[unit]}`;
};
const timeText = (ns) => ns >= 1e9 ? `${+(ns / 1e9).toPrecision(6)} s` : `${+(ns / 1e6).toPrecision(4)} ms`;

// As much of a text as fits a width.
const fitted = (context, text, width) => {
  const letters = [...text];
  let kept = letters.length;
  const shown = () => kept < letters.length ? `${letters.slice(0, kept).join('')}…` : text;
  while (kept > 0 && context.measureText(shown()).width > width) kept = Math.floor(kept * 0.95);
  return shown();
};
