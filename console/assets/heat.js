// The map of keys over time: ranges of rows down, intervals across, from the JSON in data-heat.
(() => {
  'use strict';
  const palette = [[13, 8, 35], [66, 15, 107], [147, 38, 103], [221, 81, 58], [252, 165, 10], [252, 255, 164]];
  const shade = (level) => {
    const at = level * (palette.length - 1), i = Math.min(Math.floor(at), palette.length - 2);
    return palette[i].map((v, c) => Math.round(v + (at - i) * (palette[i + 1][c] - v)));
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (n) => String(n).padStart(2, '0');
  const when = (ms, days) => { const d = new Date(ms); return (days ? `${two(d.getMonth() + 1)}-${two(d.getDate())} ` : '') + `${two(d.getHours())}:${two(d.getMinutes())}`; };
  const sized = (v) => { const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']; let i = 0; while (v >= 1024 && i < 4) { v /= 1024; i++; } return v.toFixed(v >= 10 || i === 0 ? 0 : 1) + ' ' + units[i]; };
  const timed = (us) => us === 0 ? '–' : us < 1000 ? us + ' µs' : us < 1e6 ? (us / 1000).toFixed(us < 10000 ? 2 : 0) + ' ms' : (us / 1e6).toFixed(1) + ' s';
  const units = { count: (v) => v.toLocaleString('en'), bytes: sized, micros: timed };
  const short = (text, n) => text.length > n ? text.slice(0, n - 1) + '…' : text;

  function show(figure) {
    const data = JSON.parse(figure.dataset.heat), canvas = figure.querySelector('canvas'), text = figure.querySelector('output');
    const rows = data.ends.length, columns = data.columns, most = Math.max(1, ...data.values), top = 12, bottom = 22;
    const picture = document.createElement('canvas'), days = data.interval * columns > 86400000;
    picture.width = columns; picture.height = rows;
    const image = new ImageData(columns, rows);
    data.values.forEach((v, i) => image.data.set([...shade(Math.log1p(v) / Math.log1p(most)), 255], 4 * i));
    picture.getContext('2d').putImageData(image, 0, 0);
    // place is the cell that the text describes, anchor the other corner of the selected part, and drag where a drag began.
    let place, anchor, drag;
    const left = () => canvas.clientWidth < 480 ? 72 : 150;

    function draw() {
      const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, x0 = left(), w = width - x0, h = height - top - bottom;
      canvas.width = width * ratio; canvas.height = height * ratio;
      const c = canvas.getContext('2d');
      c.scale(ratio, ratio);
      c.imageSmoothingEnabled = false;
      c.drawImage(picture, x0, top, w, h);
      c.font = '11px ui-monospace, Menlo, Consolas, monospace';
      c.fillStyle = colour('--soft');
      c.textBaseline = 'middle';
      c.textAlign = 'right';
      const every = Math.max(1, Math.ceil(rows * 15 / h));
      for (let r = 0; r < rows; r += every) c.fillText(short(data.starts[r] || 'first', x0 < 100 ? 10 : 21), x0 - 6, top + (r + .5) * h / rows);
      c.textBaseline = 'top';
      const ticks = Math.max(1, Math.floor(w / (days ? 110 : 80)));
      for (let i = 0; i <= ticks; i++) {
        c.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
        c.fillText(when(data.start + i * columns * data.interval / ticks, days), x0 + i * w / ticks, height - bottom + 6);
      }
      c.fillStyle = colour('--accent');
      for (const e of data.events) {
        const x = x0 + (e.at - data.start) / (data.interval * columns) * w;
        if (x < x0 || x > width) continue;
        c.beginPath(); c.moveTo(x - 4, 2); c.lineTo(x + 4, 2); c.lineTo(x, 10); c.fill();
      }
      if (!place) return;
      c.strokeStyle = '#fff';
      c.lineWidth = 2;
      const s = selected();
      const x = x0 + s.left * w / columns, y = top + s.first * h / rows, width1 = Math.max((s.right + 1 - s.left) * w / columns, 3), height1 = Math.max((s.last + 1 - s.first) * h / rows, 3);
      if (anchor) { c.fillStyle = 'rgba(255, 255, 255, .25)'; c.fillRect(x, y, width1, height1); }
      c.strokeRect(x, y, width1, height1);
    }

    // selected returns the ranges and intervals between anchor and place, both included.
    function selected() {
      const from = anchor || place;
      return { first: Math.min(from.row, place.row), last: Math.max(from.row, place.row), left: Math.min(from.column, place.column), right: Math.max(from.column, place.column) };
    }

    // zoom opens the page of the selected part. A side that the part has in full stays as it is.
    function zoom() {
      const s = selected(), to = new URLSearchParams(location.search), at = (column) => new Date(data.start + column * data.interval).toISOString().slice(0, 16) + 'Z';
      if (s.first > 0) to.set('start', data.starts[s.first]);
      if (s.last < rows - 1) to.set('end', data.ends[s.last]);
      if (s.left > 0 || s.right < columns - 1) { to.set('from', at(s.left)); to.set('until', at(s.right + 1)); }
      location.search = to.toString();
    }

    function move(row, column) {
      place = { row: Math.min(Math.max(row, 0), rows - 1), column: Math.min(Math.max(column, 0), columns - 1) };
      const s = selected(), at = data.start + s.left * data.interval, end = data.start + (s.right + 1) * data.interval;
      const where = `${when(at, days)} to ${when(end, days)}, rows above ${data.starts[s.first] || 'the first'} up to ${data.ends[s.last] || 'the last'}`;
      if (anchor) {
        text.textContent = `Selected: ${where}. Enter zooms to it, and Escape ends the selection.`;
      } else {
        const events = data.events.filter((e) => e.at >= at && e.at < end).map((e) => e.text);
        text.textContent = `${where}: ${units[data.unit](data.values[place.row * columns + place.column])} ${data.what}` + (events.length ? `. Then: ${events.slice(0, 4).join(', ')}` : '');
      }
      draw();
    }
    // cell returns the row and column of a pointer, which may be outside of the map.
    function cell(e) {
      const box = canvas.getBoundingClientRect(), x = e.clientX - box.left - left(), y = e.clientY - box.top - top;
      return { row: Math.floor(y / (box.height - top - bottom) * rows), column: Math.floor(x / (box.width - left()) * columns), inside: x >= 0 && y >= 0 };
    }
    const dragged = (e) => Math.abs(e.clientX - drag.x) > 4 || Math.abs(e.clientY - drag.y) > 4;
    function endDrag() { drag = anchor = undefined; if (place) move(place.row, place.column); }

    canvas.addEventListener('pointermove', (e) => {
      const at = cell(e);
      if (drag && dragged(e)) anchor = drag.cell;
      if (drag ? anchor : at.inside && !anchor) move(at.row, at.column);
    });
    canvas.addEventListener('pointerdown', (e) => { // a finger scrolls the page
      const at = cell(e);
      if (e.button !== 0 || e.pointerType === 'touch' || !at.inside) return;
      anchor = undefined;
      move(at.row, at.column);
      drag = { x: e.clientX, y: e.clientY, cell: place };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener('pointerup', (e) => {
      if (!drag) return;
      if (anchor && dragged(e)) zoom();
      endDrag();
    });
    canvas.addEventListener('pointercancel', endDrag);
    canvas.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && place) zoom();
      if (e.key === 'Escape') endDrag();
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
      if (!steps) return;
      e.preventDefault();
      const from = place || { row: 0, column: columns };
      if (!drag) anchor = e.shiftKey ? anchor || place : undefined;
      move(from.row + steps[0], from.column + steps[1]);
    });
    canvas.addEventListener('focus', () => { if (!place) move(0, columns - 1); });
    new ResizeObserver(draw).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
    draw();
  }
  document.addEventListener('DOMContentLoaded', () => document.querySelectorAll('.heat[data-heat]').forEach(show));
})();
