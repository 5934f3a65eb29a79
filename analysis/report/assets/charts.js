// The interactive figures: each function returns the option of an Apache ECharts chart from the data of the sweep.
const COLOURS = ["#3b82c4", "#dd8426", "#2b9a66", "#c2528b", "#8b6fd0", "#b0892b", "#3aa0b0", "#8b93a1"];
const STATES = { completed: "#3b82c4", baseline: "#dd8426", stopped: "#8b93a1", diverged: "#cf4f4f",
  failed: "#c2528b", out_of_memory: "#b0892b", running: "#2b9a66", interrupted: "#8b6fd0" };
const VERDICTS = { useful: "#2b9a66", harmful: "#cf4f4f", "no effect seen": "#3b82c4", "not enough trials": "#8b93a1" };
// From bad to good. Each step is visible on white and on black, and also with red-green colour blindness.
const SCALE = ["#8f6bd6", "#4f86d9", "#2e9d8f", "#b58f1f", "#e2761b"];
const EPOCH_METRICS = { val_loss: "validation loss", train_loss: "training loss", val_accuracy: "validation accuracy (%)",
  train_accuracy: "training accuracy (%)", lr: "learning rate" };
const MANY = 2000; // With more trials, ECharts draws them in one path and in steps.

let sweep, trials, rows, axes;

// Sets what the figures and the table show.
function take(data) {
  sweep = data;
  fieldsIn.clear();
  trials = sweep.trials;
  rows = trials.trial.map((_, row) => row);
  // Search parameters with the same value in all trials would only take room.
  axes = sweep.axes.filter((one) => new Set(one.values).size > 1);
}

const escapeText = (text) => echarts.format.encodeHTML(String(text));
const nameOf = (row) => String(trials.trial[row]).padStart(4, "0");
const full = () => rows.filter((row) => trials.state[row] === "completed" && trials.score[row] !== null); // trials of full length
const stateOf = (row) => (trials.is_baseline[row] && trials.state[row] === "completed" ? "baseline" : trials.state[row]);
const words = (text) => text.replaceAll("_", " ");
const titleOf = (name) => EPOCH_METRICS[name] || sweep.columns.find((one) => one.name === name)?.title || name;
// The score so far, or a metric of each epoch.
const lineOf = (row, name) => (name === "score" ? sweep.curves[row] : sweep.epochs[row][name]) || [];

function short(value) {
  if (typeof value !== "number") return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

function scoreText(row) {
  if (trials.score[row] === null) return "no score";
  const digits = sweep.percent ? 1 : 3;
  const error = trials.standard_error[row];
  return trials.score[row].toFixed(digits) + (error ? ` ± ${error.toFixed(digits)}` : "") + (sweep.percent ? " %" : "");
}

const isInside = (field, name) => field === name || field.startsWith(`${name}.`);
const fieldsIn = new Map(); // the varying fields of each search parameter
function fieldsOf(row, name) {
  if (!fieldsIn.has(name)) fieldsIn.set(name, Object.keys(sweep.varying).filter((field) => isInside(field, name)));
  return fieldsIn.get(name).filter((field) => sweep.varying[field][row] !== null).map((field) => `${field}=${short(sweep.varying[field][row])}`);
}

// What a recipe chose in a search parameter, without the fixed values that belong to an option.
function choiceOf(row, axis) {
  const known = axis.scale === "options" ? axis.inside[axis.values[row]] : null;
  if (!known) return fieldsOf(row, axis.name).join(" ");
  // Where the option searches a field, null is its value.
  const valuesOf = (name) => (sweep.varying[name]?.[row] === null ? [`${name}=null`] : fieldsOf(row, name));
  return [axis.texts[axis.values[row]], ...known.flatMap(valuesOf)].filter(Boolean).join(" ");
}

// What a recipe chose otherwise than the baseline's, as texts such as `optimizer.lr=0.01`.
function differences(row) {
  const base = sweep.baseline;
  const chosen = sweep.axes.map((axis) => [choiceOf(row, axis), base === null ? "" : choiceOf(base, axis)]);
  const others = Object.keys(sweep.varying).filter((field) => !sweep.axes.some((axis) => isInside(field, axis.name)));
  return [...chosen, ...others.map((field) => [fieldsOf(row, field).join(), base === null ? "" : fieldsOf(base, field).join()])]
    .filter(([text, before]) => text && text !== before).map(([text]) => text);
}

function describe(row) {
  const changed = differences(row);
  const more = changed.length > 10 ? [`and ${changed.length - 10} more`] : [];
  return `<b>Trial ${nameOf(row)}</b> · ${scoreText(row)} · ${escapeText(words(stateOf(row)))}<br>` +
    ([...changed.slice(0, 10), ...more].map(escapeText).join("<br>") || "the baseline's recipe");
}

function makeButton(text, onClick = null) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
  if (onClick) button.addEventListener("click", onClick);
  return button;
}

function pageColours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["ink", "soft", "line", "card"].map((key) => [key, style.getPropertyValue(`--${key}`).trim()]));
}

// What a screen reader says of a figure whose data are not what they mean, such as places in a plot.
const READ = 20; // trials that are read out; the table has all
function readOut(texts) {
  const plain = texts.slice(0, READ).map((html) => html.replace(/<br>/g, ", ").replace(/<[^>]*>/g, ""));
  return [...plain, ...(texts.length > READ ? [`and ${texts.length - READ} more`] : [])].join("; ");
}
const byScore = () => rows.filter((row) => trials.score[row] !== null).sort((a, b) => (sweep.maximise ? -1 : 1) * (trials.score[a] - trials.score[b]));

// `about` is what a screen reader says; without it, the library reads the data.
function basics(page, about = "") {
  return {
    animation: false, textStyle: { fontFamily: "system-ui, sans-serif", color: page.ink }, aria: { enabled: true, label: { description: about || null } },
    tooltip: { trigger: "item", confine: true, backgroundColor: page.card, borderColor: page.line,
      textStyle: { color: page.ink, fontSize: 12 }, extraCssText: "max-width:22rem;white-space:normal" },
  };
}

function axis(page, name, more) {
  return { name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: page.soft }, scale: true,
    axisLabel: { color: page.soft, hideOverlap: true }, axisLine: { onZero: false, lineStyle: { color: page.soft } },
    splitLine: { lineStyle: { color: page.line } }, ...more };
}

// An axis of numbers whose ends are ticks too, so that no label stands close to an end.
function spanning(page, values, most = Infinity, parts = innerWidth > 640 ? 6 : 3) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const tick = echarts.number.nice((high - low || 1) / parts, true);
  return { type: "value", interval: tick, min: tick * Math.floor(low / tick), max: Math.min(most, tick * Math.ceil(high / tick)),
    axisLabel: { color: page.soft, formatter: (value) => short(value).replace("-", "−"), hideOverlap: true } };
}

// No share is above 100 %.
const mostScore = () => (sweep.percent ? 100 : Infinity);
const scoreAxis = (page, scores, parts = 6) =>
  axis(page, sweep.label, { nameGap: 38, ...spanning(page, scores.length ? scores : [0, 1], mostScore(), parts) });

// Short names share the lines of a narrow page; others are leafed through.
const legend = (page, names) => ({ type: innerWidth > 640 || names.join("").length > 48 ? "scroll" : "plain", top: 0, left: 0, right: innerWidth > 640 ? 90 : 0, textStyle: { color: page.ink },
  pageTextStyle: { color: page.soft }, pageIconColor: page.soft, inactiveColor: page.line });
const toolbox = (page) => ({ show: innerWidth > 640, right: 0, top: 0, itemSize: 14, iconStyle: { borderColor: page.soft },
  feature: { dataZoom: { title: { zoom: "Zoom into a rectangle", back: "Undo the zoom" } }, restore: { title: "Reset" } } });

// The groups of trials for a colour: their names, their colours, and the group of each trial.
function group(by) {
  if (by === "state") {
    const names = [...new Set(rows.map(stateOf))];
    return { names: names.map(words), colours: names.map((name) => STATES[name] || COLOURS[7]),
      of: rows.map((row) => names.indexOf(stateOf(row))) };
  }
  const found = sweep.axes.find((one) => one.name === by);
  if (found.scale === "options") return { names: found.options, colours: COLOURS, of: found.values };
  const sorted = found.values.filter((value) => value !== null).sort((a, b) => a - b);
  const edges = [0, 1, 2, 3].map((third) => sorted[Math.min(sorted.length - 1, Math.floor((third * sorted.length) / 3))]);
  return { names: [0, 1, 2].map((third) => `${short(edges[third])} to ${short(edges[third + 1])}`), colours: COLOURS,
    of: found.values.map((value) => (value === null ? null : value < edges[1] ? 0 : value < edges[2] ? 1 : 2)) };
}

function curves(page, { by = "state", log = false, show = "score" }) {
  const title = show === "score" ? sweep.label : titleOf(show);
  const isPercent = title.endsWith("(%)");
  const asError = log && isPercent;
  const least = 0.01; // A log axis has no place for an error of 0.
  const place = (score) => (asError ? Math.max(least, 100 - score) : score);
  const { names, colours, of } = group(by);
  const points = (row) => lineOf(row, show).map((score, epoch) => [epoch + 1, score]).filter(([, score]) => score !== null)
    .map(([epoch, score]) => [epoch, place(score)]);
  const drawn = rows.map(points);
  const heights = drawn.flat().map(([, height]) => height);
  const ends = heights.reduce(([low, high], height) => [Math.min(low, height), Math.max(high, height)], [Infinity, -Infinity]);
  // A series of many lines does not widen its axes by itself.
  const { min, max } = log ? { min: ends[0], max: ends[1] } : spanning(page, ends, isPercent ? 100 : Infinity);
  const longest = Math.max(1, ...rows.map((row) => sweep.curves[row].length));
  const many = rows.length > MANY;
  const item = (row) => ({ row, coords: drawn[row] });
  const series = names.flatMap((name, index) => {
    const inside = rows.filter((row) => of[row] === index && drawn[row].length);
    const style = { color: colours[index % colours.length] };
    const faint = many ? 0.25 : 0.6;
    return [
      { name, type: "lines", coordinateSystem: "cartesian2d", polyline: true, clip: true, color: style.color, large: many,
        largeThreshold: 1, progressive: 1000, data: inside.filter((row) => drawn[row].length > 1).map(item),
        lineStyle: { ...style, width: 1.2, opacity: faint }, emphasis: { lineStyle: { width: 3, opacity: 1 } } },
      { name, type: "scatter", symbolSize: 4, large: many, itemStyle: { ...style, opacity: faint },
        data: inside.filter((row) => drawn[row].length === 1).map((row) => ({ row, value: drawn[row][0] })) },
    ];
  });
  const best = sweep.best === null ? [] : drawn[sweep.best].map((value) => ({ row: sweep.best, value }));
  series.push({ name: "the best", type: "line", data: best, symbolSize: 5, color: page.ink, z: 5,
    lineStyle: { width: 2.5, color: page.ink },
    markLine: { silent: true, symbol: "none", lineStyle: { color: page.soft, type: "dotted" },
      data: sweep.rungs.map(([epoch, count]) => ({ xAxis: epoch, 
        label: { formatter: String(count), color: page.soft, position: asError ? "start" : "end" } })) } });
  const label = asError ? title.replace("accuracy (%)", "error (%)").replace(/^(?!.*error)/, "100 − ") : title;
  const about = byScore().map((row) => `trial ${nameOf(row)}, ${words(stateOf(row))}, ${lineOf(row, show).at(-1) ?? "no value"} after epoch ${lineOf(row, show).length}`);
  return { ...basics(page, `${title}: ${readOut(about)}`), legend: legend(page, [...names, "the best"]), toolbox: toolbox(page), series,
    grid: { left: 50, right: 40, top: 60, bottom: 42 },
    xAxis: axis(page, "epoch", { type: "value", min: 1, max: Math.max(2, longest), minInterval: 1 }),
    yAxis: axis(page, label, { type: log ? "log" : "value", logBase: 2, min, max,
      nameGap: 38, inverse: asError, axisLabel: { color: page.soft, formatter: short, showMaxLabel: log ? null : false } }) };
}

function parallel(page) {
  const scored = rows.filter((row) => trials.score[row] !== null);
  const last = axes.length;
  const low = echarts.number.quantile(scored.map((row) => trials.score[row]).sort((a, b) => a - b), 0.1) || 0;
  const high = Math.max(low + 1e-9, ...scored.map((row) => trials.score[row]));
  const name = { nameTextStyle: { color: page.ink, fontSize: 11, lineHeight: 14 }, axisLine: { lineStyle: { color: page.soft } },
    axisLabel: { color: page.ink, fontSize: 10, formatter: short, hideOverlap: true } };
  const parallelAxis = axes.map((one, dim) => ({ dim, name: one.name.replace(/\.(?=[^.]*$)/, "\n"), ...name,
    ...(one.scale === "options"
      ? { type: "category", data: one.options, axisLabel: { ...name.axisLabel, formatter: (text) => cut(text, 16) } }
      : { type: one.scale === "log" ? "log" : "value", min: "dataMin", max: "dataMax" }) }));
  parallelAxis.push({ dim: last, name: sweep.label.replace("validation ", ""), ...name, type: "value", scale: true,
    inverse: !sweep.maximise });
  const make = (label, inside, opacity) => ({ name: label, type: "parallel", progressive: 1000, smooth: false,
    lineStyle: { width: 1.2, opacity }, inactiveOpacity: 0.03, emphasis: { lineStyle: { width: 3, opacity: 1 } },
    data: inside.map((row) => ({ row, value: [...axes.map((one) => one.values[row] ?? "-"), trials.score[row]] })) });
  const done = (row) => trials.state[row] === "completed";
  const strength = scored.length > MANY ? 0.35 : 0.85;
  return { ...basics(page, readOut(byScore().map(describe))),
    visualMap: { show: false, dimension: last, min: low, max: high,
      inRange: { color: sweep.maximise ? SCALE : [...SCALE].reverse() } },
    parallel: { left: 40, right: 60, top: 52, bottom: 20,
      parallelAxisDefault: { areaSelectStyle: { width: 18, color: page.ink, opacity: 0.12, borderColor: page.ink } } },
    parallelAxis,
    series: [make("stopped early", scored.filter((row) => !done(row)), strength / 4), make("completed", scored.filter(done), strength)] };
}

// The trials of full length that no other beats in both its score and its cost, the cheapest first.
function frontOf(costs) {
  const worth = (row) => (sweep.maximise ? 1 : -1) * trials.score[row];
  const sorted = full().filter((row) => costs[row] !== null).sort((a, b) => costs[a] - costs[b] || worth(b) - worth(a));
  const front = [];
  for (const row of sorted) if (!front.length || worth(row) > worth(front.at(-1))) front.push(row);
  return front;
}

// The place of a trial on an axis. Those of one option lie side by side; a fixed spread keeps them there when the theme changes.
const placeOf = (one, row) => one.values[row] + (one.scale === "options" ? (((row * 0.618034) % 1) - 0.5) * 0.4 : 0);
const cut = (text, width) => (text.length > width ? `${text.slice(0, width - 1)}…` : text);

function scores(page, { over = "seconds" }) {
  const column = sweep.axes.find((one) => one.name === over);
  const values = column ? column.values : trials[over];
  const isChoice = column && column.scale === "options";
  const { names, colours, of } = group("state");
  const series = names.map((name, index) => ({ name, type: "scatter", symbolSize: 7, large: rows.length > MANY, color: colours[index],
    itemStyle: { opacity: rows.length > MANY ? 0.5 : 0.8 }, z: name === "baseline" ? 4 : 3,
    data: rows.filter((row) => of[row] === index && values[row] !== null && trials.score[row] !== null)
      .map((row) => ({ row, value: [column ? placeOf(column, row) : values[row], trials.score[row]] })) }));
  if (!column) series.push({ type: "line", step: "end", symbol: "none", silent: true, color: COLOURS[0], lineStyle: { width: 1 },
    data: frontOf(values).map((row) => [values[row], trials.score[row]]) });
  const options = isChoice ? { min: -1, max: column.options.length, interval: 1, splitLine: { show: false },
    axisTick: { show: false }, axisLabel: { color: page.soft, showMinLabel: false, showMaxLabel: false, hideOverlap: true,
      formatter: (value) => column.options[Math.round(value)] ?? "" } } : {};
  const valueOf = (row) => (isChoice ? column.options[values[row]] : short(values[row]));
  const about = byScore().filter((row) => values[row] !== null).map((row) => `trial ${nameOf(row)}: ${titleOf(over)}=${valueOf(row)}, ${scoreText(row)}`);
  return { ...basics(page, readOut(about)), legend: legend(page, names), toolbox: toolbox(page), series,
    grid: { left: 50, right: 20, top: innerWidth > 640 ? 40 : 60, bottom: 42 },
    xAxis: axis(page, titleOf(over), { type: column && column.scale === "log" ? "log" : "value", ...options,
      ...(isChoice ? {} : { axisLabel: { color: page.soft, formatter: short, hideOverlap: true } }) }),
    yAxis: scoreAxis(page, trials.score.filter((score) => score !== null)) };
}

function course(page) {
  return { ...basics(page), grid: { left: 50, right: 20, top: 14, bottom: 42 },
    xAxis: axis(page, "epochs of all trials", { type: "value", min: 0, minInterval: 1 }), yAxis: scoreAxis(page, sweep.course.map(([, score]) => score)),
    series: [{ name: `best ${sweep.label}`, type: "line", step: "end", symbol: "none", color: COLOURS[0], data: sweep.course }] };
}

// The names of rows from top to bottom, each in at most `width` pixels; and a line where their difference is 0.
const nameAxis = (page, shown, width) => ({ type: "category", inverse: true, data: shown.map((row) => row.name),
  axisTick: { show: false }, axisLine: { lineStyle: { color: page.soft } },
  axisLabel: { color: page.ink, interval: 0, width, overflow: "break", lineHeight: 12, fontSize: 11 } });
const zeroLine = (page) => ({ silent: true, symbol: "none", label: { show: false }, data: [{ xAxis: 0 }],
  lineStyle: { color: page.ink, type: "solid" } });

function effects(page) {
  const shown = sweep.effects;
  const known = shown.map((row, place) => ({ ...row, place })).filter((row) => row.effect !== null);
  const item = (row, more) => ({ ...more, effect: row.place, itemStyle: { color: VERDICTS[row.verdict] },
    lineStyle: { color: VERDICTS[row.verdict], width: 3, opacity: 1 } });
  const ends = [0, ...known.flatMap((row) => [row.low, row.high])];
  return { ...basics(page, readOut(known.map((row) => describeEffect(row.place)))), grid: { left: Math.min(260, 0.42 * innerWidth), right: 24, top: 6, bottom: 42 },
    xAxis: axis(page, `${sweep.percent ? "points " : ""}better than the baseline's choice`,
      spanning(page, ends)),
    yAxis: nameAxis(page, shown, Math.min(250, 0.4 * innerWidth)),
    series: [
      { type: "lines", coordinateSystem: "cartesian2d", polyline: true,
        data: known.map((row) => item(row, { coords: [[row.low, row.place], [row.high, row.place]] })) },
      { type: "scatter", symbolSize: 9, data: known.map((row) => item(row, { value: [row.effect, row.place] })),
        markLine: zeroLine(page) },
    ] };
}

function describeEffect(place) {
  const row = sweep.effects[place];
  const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(sweep.percent ? 1 : 3);
  return `<b>${escapeText(row.name)}</b><br>${escapeText(row.verdict)}: ${signed(row.effect)} ` +
    `(${signed(row.low)} to ${signed(row.high)})`;
}

// What the user has selected on the parallel axes, by the name of the axis.
function readIntervals(chart) {
  const found = (chart.getOption().parallelAxis || []).map(({ name }, place) =>
    [name, chart.getModel().getComponent("parallelAxis", place).activeIntervals]);
  return new Map(found.filter(([, intervals]) => intervals.length));
}

function restoreIntervals(chart, intervals) {
  for (const [place, { name }] of (chart.getOption().parallelAxis || []).entries()) {
    if (!intervals.has(name)) continue;
    const { id } = chart.getModel().getComponent("parallelAxis", place);
    chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: id, intervals: intervals.get(name) });
  }
}

// Draws a figure element. `onTrial` gets the row of a clicked trial, `onBrush` the selected rows or null.
function draw(element, builders, { onTrial, onBrush }) {
  const build = builders[element.dataset.chart];
  const chart = echarts.init(element.querySelector(".canvas"), null, { renderer: "canvas" });
  const settings = JSON.parse(element.dataset.settings || "{}");
  const render = () => {
    const option = build(pageColours(), settings);
    if (option.tooltip.trigger === "item") option.tooltip.formatter = ({ data }) => data === undefined || data === null ? "" : data.html !== undefined ? data.html :
      data.effect !== undefined ? describeEffect(data.effect) : data.row !== undefined ? describe(data.row) : "";
    const shown = chart.getOption();
    if (shown && shown.legend && option.legend) option.legend.selected = shown.legend[0].selected;
    const intervals = shown ? readIntervals(chart) : new Map();
    chart.setOption(option, true);
    restoreIntervals(chart, intervals);
  };
  const controls = element.querySelectorAll("select, input");
  const read = () => {
    for (const { name, type, checked, value } of controls) settings[name] = type === "checkbox" ? checked : value;
    render();
  };
  read(); // a figure is drawn when it comes into view, and a control may have changed before
  for (const control of controls) control.addEventListener("change", read);
  chart.on("click", ({ data }) => data && data.row !== undefined && onTrial && onTrial(data.row));
  chart.on("axisareaselected", () => {
    if (!onBrush) return;
    const { series, parallelAxis } = chart.getOption();
    const isBrushed = parallelAxis.some((_, place) => chart.getModel().getComponent("parallelAxis", place).activeIntervals.length);
    const found = series.flatMap((one, place) =>
      chart.getModel().getSeriesByIndex(place).getRawIndicesByActiveState("active").map((index) => one.data[index].row));
    onBrush(isBrushed ? found : null);
  });
  new ResizeObserver(() => chart.resize()).observe(element);
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 40rem)"]) matchMedia(query).addEventListener("change", render);
}

// On paper nobody can open a part of the page.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) part.open = part.dataset.isForPrint = true;
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-is-for-print]")) {
    part.open = false;
    delete part.dataset.isForPrint;
  }
});

const BUILDERS = { curves, parallel, scores, course, effects };
