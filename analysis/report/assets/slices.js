// The score over each search parameter: trials at full length alone, as others are not comparable.

// One axis of numbers; each option is at its place.
function placeAxis(page, one, ends, more) {
  const isNumber = one.scale === "linear"; // the ends of its axis are no round numbers
  const label = { color: page.soft, hideOverlap: true, showMinLabel: isNumber ? false : null, showMaxLabel: isNumber ? false : null, formatter: short };
  const options = one.scale === "options" ? { interval: 1, axisTick: { show: false }, axisLabel: { ...label,
    showMinLabel: false, showMaxLabel: false, formatter: (value) => cut(one.options[value] ?? "", 14) } } : { axisLabel: label };
  return axis(page, one.name, { type: one.scale === "log" ? "log" : "value", min: ends[0], max: ends[1], splitLine: { show: false }, ...options, ...more });
}

const move = (one, value) => (one.scale === "log" ? Math.log(value) : value);
function endsOf(one, shown) {
  if (one.scale === "options") return [-1, one.options.length];
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
    xAxis: sweep.slices.map((one, at) => placeAxis(page, one, endsOf(one, shown.filter((row) => one.values[row] !== null)), { gridIndex: at, nameGap: 22 })),
    yAxis: sweep.slices.map((_, at) => ({ ...scoreAxis(page, shown.map((row) => trials.score[row]), 3), gridIndex: at, name: at === columns * Math.floor((lines - 1) / 2) ? sweep.label : "" })),
    series: sweep.slices.flatMap((one, at) => Object.entries(inside).map(([name, members]) => ({ name, type: "scatter", symbolSize: 6, color: STATES[name],
      xAxisIndex: at, yAxisIndex: at, itemStyle: { opacity: 0.8 }, z: name === "baseline" ? 4 : 3, large: shown.length > MANY,
      data: members.filter((row) => one.values[row] !== null).map((row) => ({ row, value: [placeOf(one, row), trials.score[row]] })) }))) };
}

Object.assign(BUILDERS, { slices });
