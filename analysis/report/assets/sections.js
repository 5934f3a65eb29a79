// The figures and tables of sections: intervals of recipes, and the score of a model.
const plainText = (html) => escapeText(html).replaceAll("\n", "<br>");

// One row for each recipe: the mean with its interval, and a point for each seed.
function intervals(page, { place }) {
  const { label, zero, rows: shown } = sweep.charts[place];
  const ends = shown.flatMap((row) => [row.low, row.high, ...row.points.map(([value]) => value), ...(zero ? [0] : [])]);
  const item = (row, line, value, html) => ({ value: [value, line], html: plainText(html), itemStyle: { color: COLOURS[row.group] } });
  const about = shown.map((row) => [row.text, ...row.points.map(([, text]) => text.split("\n")[1])].join(", "));
  return { ...basics(page, readOut(about)), grid: { left: Math.min(230, 0.4 * innerWidth), right: 24, top: 6, bottom: 42 },
    xAxis: axis(page, label, spanning(page, ends)),
    yAxis: nameAxis(page, shown, Math.min(220, 0.38 * innerWidth)),
    series: [
      { type: "lines", coordinateSystem: "cartesian2d", polyline: true, data: shown.map((row, line) => ({
        coords: [[row.low, line], [row.high, line]], html: plainText(row.text),
        lineStyle: { color: COLOURS[row.group], width: 3, opacity: 1 } })) },
      { type: "scatter", symbolSize: 11, data: shown.map((row, line) => item(row, line, row.mean, row.text)), z: 4,
        ...(zero ? { markLine: zeroLine(page) } : {}) },
      // Points stand a little below the interval, so that it stays visible.
      { type: "scatter", symbolSize: 7, symbolOffset: [0, 11], symbol: "diamond", z: 5, itemStyle: { opacity: 0.75 },
        data: shown.flatMap((row, line) => row.points.map(([value, text]) => item(row, line, value, text))) },
    ] };
}

function confusion(page, { place }) {
  const { classes, table } = sweep.charts[place];
  const sums = table.map((row) => row.reduce((sum, count) => sum + count, 0));
  const cells = table.flatMap((row, truth) => row.map((count, guess) => ({
    value: [guess, truth, sums[truth] ? count / sums[truth] : 0], count,
    html: plainText(`true: ${classes[truth]}\npredicted: ${classes[guess]}\n${count} of ${sums[truth]} images`) })));
  const names = { type: "category", data: classes, splitLine: { show: false }, axisTick: { show: false } };
  const few = classes.length <= 30;
  const found = classes.map((name, at) => `${name}: ${table[at][at]} of ${sums[at]} images recognised`);
  const long = classes.some((name) => name.length > 3);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return { ...basics(page, readOut(found)), grid: { left: long ? 110 : 50, right: 20, top: 10, bottom: long ? 90 : 45 },
    xAxis: axis(page, "predicted", { ...names, nameGap: long ? 70 : 26, axisLabel: { color: page.soft, rotate: long ? 60 : 0, width: 70, overflow: "truncate" } }),
    yAxis: axis(page, "true", { ...names, inverse: true, nameGap: long ? 90 : 30, axisLabel: { color: page.soft, width: 80, overflow: "truncate" } }),
    // The blues on which these numbers can be read (contrast 4.5).
    visualMap: { show: false, dimension: 2, min: 0, max: 1, inRange: { color: [page.card, isDark ? "#2f6aa8" : "#3b82c4"] } },
    series: [{ type: "heatmap", data: cells, itemStyle: { borderColor: page.line, borderWidth: few ? 1 : 0 },
      label: { show: few, color: isDark ? "#fff" : "#000", fontSize: 11, formatter: ({ data }) => data.count || "" } }] };
}

function reliability(page, { place }) {
  const bins = sweep.charts[place];
  const share = (value) => `${(100 * value).toFixed(1)} %`;
  const line = (key, name, color) => ({ name, type: "line", color, lineStyle: { width: 1.2 }, symbol: "circle",
    data: bins[key].map((bin) => ({ value: [bin.confidence, bin.accuracy], symbolSize: 5 + 30 * Math.sqrt(bin.share),
      itemStyle: { opacity: 0.7 }, html: plainText(`${name}\nconfidence ${share(bin.confidence)}, accuracy ${share(bin.accuracy)}\n` +
        `${share(bin.share)} of the images`) })) });
  const scale = { type: "value", min: 0, max: 1, scale: false };
  const lines = [line("before", "without scaling", COLOURS[1])];
  if (bins.after) lines.push(line("after", "with temperature scaling", COLOURS[0]));
  return { ...basics(page), legend: legend(page, lines.map(({ name }) => name)), grid: { left: 55, right: 20, top: innerWidth > 640 ? 36 : 64, bottom: 42 },
    xAxis: axis(page, "confidence", scale), yAxis: axis(page, "accuracy", { ...scale, nameGap: 38 }),
    series: [...lines,
      { name: "perfect", type: "line", silent: true, symbol: "none", color: page.soft, data: [[0, 0], [1, 1]],
        lineStyle: { type: "dashed", width: 1 } }] };
}

Object.assign(BUILDERS, { intervals, confusion, reliability });
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
