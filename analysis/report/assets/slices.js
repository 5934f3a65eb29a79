// The score over each search parameter, and over two of them: trials at full length alone, as others are not comparable.
const CELLS = 40; // of an interval; an option is one cell
const WIDTH = 0.1; // distance over which trials count as near, as a share of an interval
const NEAR = 0.3; // sum of the weights below which a place has no trial near it

// One axis of numbers; each option is at its place.
function placeAxis(page, one, ends, more) {
  const isNumber = one.scale === "linear"; // the ends of its axis are no round numbers
  const label = { color: page.soft, hideOverlap: true, showMinLabel: isNumber ? false : null, showMaxLabel: isNumber ? false : null, formatter: short };
  const options = one.scale === "options" ? { interval: 1, axisTick: { show: false }, axisLabel: { ...label,
    showMinLabel: false, showMaxLabel: false, formatter: (value) => cut(one.options[value] ?? "", 14) } } : { axisLabel: label };
  return axis(page, one.name, { type: one.scale === "log" ? "log" : "value", min: ends[0], max: ends[1], splitLine: { show: false }, ...options, ...more });
}

const move = (one, value) => (one.scale === "log" ? Math.log(value) : value);
function endsOf(one, shown, room) {
  if (one.scale === "options") return [-room, one.options.length - 1 + room];
  const moved = shown.map((row) => move(one, one.values[row]));
  const [low, high] = [Math.min(...moved), Math.max(...moved)];
  const ends = [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)];
  return one.scale === "log" ? ends.map(Math.exp) : ends;
}

function slices(page) {
  const shown = full();
  const columns = 3;
  const lines = Math.ceil(sweep.slices.length / columns);
  const inside = { baseline: shown.filter((row) => trials.is_baseline[row]), completed: shown.filter((row) => !trials.is_baseline[row]) };
  const box = (at) => ({ left: `${5 + (at % columns) * 32}%`, width: "26%", top: 34 + Math.floor(at / columns) * 170, height: 110 });
  return { ...basics(page, readOut(byScore().filter((row) => shown.includes(row)).map(describe))), legend: legend(page, Object.keys(inside)),
    grid: sweep.slices.map((_, at) => box(at)),
    xAxis: sweep.slices.map((one, at) => placeAxis(page, one, endsOf(one, shown.filter((row) => one.values[row] !== null), 1), { gridIndex: at, nameGap: 22 })),
    yAxis: sweep.slices.map((_, at) => ({ ...scoreAxis(page, shown.map((row) => trials.score[row]), 3), gridIndex: at, name: at === columns * Math.floor((lines - 1) / 2) ? sweep.label : "" })),
    series: sweep.slices.flatMap((one, at) => Object.entries(inside).map(([name, members]) => ({ name, type: "scatter", symbolSize: 6, color: STATES[name],
      xAxisIndex: at, yAxisIndex: at, itemStyle: { opacity: 0.8 }, z: name === "baseline" ? 4 : 3, large: shown.length > MANY,
      data: members.filter((row) => one.values[row] !== null).map((row) => ({ row, value: [placeOf(one, row), trials.score[row]] })) }))) };
}

// The middles of the cells of an axis, and how near each trial is to them.
function cellsOf(one, ends, shown) {
  if (one.scale === "options") return one.options.map((_, at) => shown.map((row) => Number(one.values[row] === at)));
  const [low, high] = ends.map((end) => move(one, end));
  return Array.from({ length: CELLS }, (_, at) => shown.map((row) =>
    Math.exp(-0.5 * (((at + 0.5) / CELLS - (move(one, one.values[row]) - low) / (high - low)) / WIDTH) ** 2)));
}

function contour(page, { x, y }) {
  const [one, other] = [x, y].map((name) => sweep.slices.find((slice) => slice.name === name));
  const shown = full().filter((row) => one.values[row] !== null && other.values[row] !== null);
  const ends = [one, other].map((slice) => endsOf(slice, shown, 0.5));
  const near = [one, other].map((slice, at) => cellsOf(slice, ends[at], shown));
  const scores = shown.map((row) => trials.score[row]);
  const field = near[0].flatMap((across, column) => near[1].map((up, line) => {
    const weights = across.map((weight, at) => weight * up[at]);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return sum < NEAR ? null : [column, line, weights.reduce((total, weight, at) => total + weight * scores[at], 0) / sum];
  })).filter(Boolean);
  const sorted = [...scores].sort((a, b) => a - b);
  const [low, high] = sweep.maximise ? [echarts.number.quantile(sorted, 0.1), sorted.at(-1)] : [sorted[0], echarts.number.quantile(sorted, 0.9)];
  // The cells of the field have an axis of their own, which also names options.
  const cells = (slice, at, position) => ({ type: "category", position, data: slice.scale === "options" ? slice.options : near[at].map((_, cell) => cell),
    show: slice.scale === "options", axisLine: { show: false }, axisTick: { show: false },
    axisLabel: { color: page.soft, interval: 0, formatter: (name) => cut(name, 12), hideOverlap: true } });
  const text = (value) => (sweep.percent ? `${value.toFixed(1)} %` : short(value));
  return { ...basics(page, readOut(byScore().filter((row) => shown.includes(row)).map(describe))),
    grid: { left: 92, right: 30, top: 48, bottom: 46 },
    visualMap: { min: low, max: Math.max(high, low + 1e-9), dimension: 2, orient: "horizontal", left: 0, top: 0, itemHeight: innerWidth > 640 ? 120 : 60, itemWidth: 12,
      calculable: false, text: [`${text(high)}`, `${sweep.label.replace(" (%)", "")}: ${text(low)}`], textStyle: { color: page.ink },
      inRange: { color: sweep.maximise ? SCALE : [...SCALE].reverse() } },
    xAxis: [placeAxis(page, one, ends[0]), cells(one, 0, "bottom")],
    yAxis: [placeAxis(page, other, ends[1], { nameGap: 72 }), cells(other, 1, "left")],
    series: [
      { type: "heatmap", xAxisIndex: 1, yAxisIndex: 1, itemStyle: { opacity: 0.45 }, emphasis: { disabled: true },
        data: field.map((value) => ({ value, html: `mean of the trials near here: ${text(value[2])}` })) },
      { type: "scatter", symbolSize: 10, itemStyle: { borderColor: page.ink, borderWidth: 0.7 },
        data: shown.map((row) => ({ row, value: [one.values[row], other.values[row], trials.score[row]] })) },
    ] };
}

Object.assign(BUILDERS, { slices, contour });
