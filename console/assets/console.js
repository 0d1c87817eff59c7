// What the pages do beyond links and forms: they show whether they are live, and draw the charts.
(() => {
  'use strict';
  // follow keeps the page up to date while it is visible: the node sends its main part when it has changed. What the user types is kept.
  function follow(main) {
    let source, again, silent;
    const tell = (text) => { const f = document.getElementById('freshness'); if (f.textContent !== text) f.textContent = text; };
    const stop = () => { clearTimeout(again); if (source) source.close(); source = undefined; };
    const connect = () => {
      stop();
      if (document.hidden) return;
      source = new EventSource(main.dataset.live);
      source.onopen = () => { clearTimeout(silent); silent = undefined; tell('live'); };
      source.addEventListener('page', (event) => {
        Idiomorph.morph(main, event.data, { morphStyle: 'innerHTML', ignoreActiveValue: true, callbacks: {
          beforeNodeMorphed: (old) => !(old.classList && old.classList.contains('plot')),
          beforeAttributeUpdated: (name, node) => !(name === 'open' && node.nodeName === 'DETAILS'),
        } });
        drawAll();
      });
      // A stream ends after a while, and the browser connects again by itself unless the node answers with an error.
      source.onerror = () => {
        silent = silent || setTimeout(() => tell('not live: the node does not answer'), 6000);
        if (source && source.readyState === EventSource.CLOSED) again = setTimeout(connect, 10000);
      };
    };
    document.addEventListener('visibilitychange', () => (document.hidden ? stop() : connect()));
    connect();
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const formats = {
    count: (v) => v == null ? '–' : v >= 1e6 ? (v / 1e6).toFixed(1) + ' M' : v >= 1e4 ? (v / 1e3).toFixed(0) + ' k' : v >= 1e3 ? (v / 1e3).toFixed(1) + ' k' : v >= 10 || v === 0 ? v.toFixed(0) : v.toFixed(1),
    ms: (v) => v == null ? '–' : v >= 1000 ? (v / 1000).toFixed(1) + ' s' : v >= 10 || v === 0 ? v.toFixed(0) + ' ms' : v.toFixed(2) + ' ms',
    bytes: (v) => { if (v == null) return '–'; const units = ['B', 'KiB', 'MiB', 'GiB']; let i = 0; while (v >= 1024 && i < 3) { v /= 1024; i++; } return v.toFixed(v >= 10 || i === 0 ? 0 : 1) + ' ' + units[i]; },
  };

  const powers = Array.from({ length: 40 }, (x, i) => 2 ** i);
  const clock = (seconds, exact) => new Date(seconds * 1000).toTimeString().slice(0, exact ? 8 : 5);

  // span returns the times of a chart, at least a quarter of an hour. uPlot makes a day of a single point.
  const span = (u, min, max) => { const at = u.data[0], end = at.at(-1); return at.length ? [Math.min(at[0], end - 900), end] : [min, max]; };

  // draw draws the chart of an element from the JSON in its data-series: {unit, times, lines: [{name, colour, values}]}.
  function draw(chart) {
    const plot = chart.querySelector('.plot');
    const data = JSON.parse(chart.dataset.series);
    const rows = [data.times, ...data.lines.map((l) => l.values)];
    const showLast = (u) => { if (u.cursor.left < 0) u.setLegend({ idx: u.data[0].length - 1 }); };
    if (chart.plot) { chart.plot.setData(rows); return; }
    const format = formats[data.unit];
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui' };
    plot.textContent = '';
    chart.plot = new uPlot({
      width: plot.clientWidth, height: 150, cursor: { drag: { x: false, y: false }, y: false }, legend: { live: true },
      scales: { x: { time: true, range: span }, y: { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, size: 30, space: 60, values: (u, ticks) => ticks.map((v) => clock(v)) },
        { ...axis, size: 64, values: (u, ticks) => ticks.map(format), ...(data.unit === 'bytes' ? { incrs: powers } : {}) }],
      series: [{ value: (u, v) => v == null ? '–' : clock(v, true) },
        ...data.lines.map((l) => ({ label: l.name, stroke: colour(l.colour), width: 1.5, dash: l.dash || [], points: { show: (u) => u.data[0].length === 1 }, value: (u, v) => format(v) }))],
      hooks: { draw: [showLast], setCursor: [showLast] },
    }, rows, plot);
  }
  const drawAll = () => document.querySelectorAll('.chart[data-series]').forEach(draw);
  document.addEventListener('DOMContentLoaded', () => {
    drawAll();
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
    const main = document.querySelector('main[data-live]');
    if (main) follow(main);
  });
  new ResizeObserver(() => document.querySelectorAll('.chart[data-series]').forEach((c) => {
    if (c.plot) c.plot.setSize({ width: c.querySelector('.plot').clientWidth, height: 150 });
  })).observe(document.documentElement);
})();
