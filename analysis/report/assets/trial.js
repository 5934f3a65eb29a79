// The dialog that shows one trial: its recipe, its curve, and how to train it again.
function nest(flat) {
  const tree = {};
  for (const [path, value] of Object.entries(flat)) {
    const steps = path.split(".");
    const last = steps.pop();
    let place = tree;
    for (const step of steps) place = place[step] ??= {};
    place[last] = value;
  }
  return tree;
}

// YAML in block style; JSON's scalars and lists are YAML too.
function toYaml(tree, indent = "") {
  return Object.entries(tree).map(([key, value]) => value !== null && typeof value === "object" && !Array.isArray(value)
    ? `${indent}${key}:\n${toYaml(value, `${indent}  `)}` : `${indent}${key}: ${JSON.stringify(value)}\n`).join("");
}

function recipeOf(row) {
  const own = Object.entries(sweep.varying).map(([name, values]) => [name, values[row]]).filter(([, value]) => value !== null);
  return { ...sweep.fixed, ...Object.fromEntries(own) };
}

function showTrial(row) {
  const dialog = document.getElementById("trial");
  fillTrial(dialog, row);
  dialog.showModal();
  drawOwnCurve(dialog.querySelector(".canvas"), row);
}

function fillTrial(dialog, row) {
  const put = (key, text) => { dialog.querySelector(`[data-put=${key}]`).textContent = text; };
  const epochs = trials.epochs_done[row] ?? 0;
  const seconds = trials.seconds[row], memory = trials.memory_mb[row];
  put("title", `Trial ${nameOf(row)}`);
  put("facts", [scoreText(row), words(stateOf(row)), `${epochs} of ${trials.epochs[row]} epochs`,
    ...(seconds === null ? [] : [`${short(seconds)} s of training`]),
    ...(memory === null ? [] : [`${short(memory)} MB of memory`])].join(" · "));
  put("reason", trials.reason[row] || "");
  const changed = differences(row);
  put("changes", changed.join("\n") || "The recipe is that of the baseline.");
  put("recipe", `format: ${sweep.format}\nrecipe:\n${toYaml(nest(recipeOf(row)), "  ")}`);
  put("scores", listEpochs(row).join("\n") || "No epoch has ended.");
  dialog.dataset.trial = trials.trial[row];
  put("export", `sweep export ${sweep.name} --trial ${nameOf(row)}`);
}

function drawOwnCurve(canvas, row) {
  const chart = echarts.getInstanceByDom(canvas) || echarts.init(canvas);
  const other = sweep.best === row ? null : sweep.best;
  chart.setOption(compareEpochs(pageColours(), row, other, `the best, ${other === null ? "" : nameOf(other)}`), true);
  chart.resize();
}

// The panels of a trial's epochs: a title, the line of the validation or the only one, and that of the training.
const PANELS = [["score so far", "score", null], ["loss", "val_loss", "train_loss"], ["accuracy (%)", "val_accuracy", "train_accuracy"],
  ["learning rate", "lr", null]];

// The epochs of one trial, and thinner ones of another trial if there is one. Training is dashed.
function compareEpochs(page, row, other, name) {
  const drawn = [[row, `trial ${nameOf(row)}`, COLOURS[0], 2.4], ...(other === null ? [] : [[other, name, COLOURS[1], 1.4]])];
  const panels = PANELS.filter(([, main, training]) => drawn.some(([one]) => lineOf(one, main).length || lineOf(one, training).length));
  const columns = innerWidth > 640 && panels.length > 1 ? 2 : 1;
  const [width, height] = [100 / columns, 94 / Math.ceil(panels.length / columns)]; // in per cent; the legend is above
  const longest = Math.max(2, ...drawn.map(([one]) => trials.epochs_done[one] ?? 0));
  const place = panels.map((_, at) => ({ left: (at % columns) * width, top: 6 + Math.floor(at / columns) * height }));
  const head = columns === 1 ? 4 : 7; // for the title of a panel, in per cent
  const line = (at, [one, name, color, width], key, type) => ({ name, type: "line", xAxisIndex: at, yAxisIndex: at, color,
    lineStyle: { width, type }, symbolSize: 4, showSymbol: lineOf(one, key).length === 1,
    data: lineOf(one, key).map((value, epoch) => ({ value: [epoch + 1, value], text: `${name}, ${titleOf(key)}: ${value ?? "–"}` })) });
  return { ...basics(page, describeEpochs(drawn)), legend: { ...legend(page, drawn.map(([, name]) => name)), right: 0 },
    tooltip: { ...basics(page).tooltip, trigger: "axis", formatter: (items) =>
      items.map(({ marker, data }) => marker + escapeText(data.text)).join("<br>") },
    title: panels.map(([title], at) => ({ text: title, left: `${place[at].left + 1}%`, top: `${place[at].top}%`,
      textStyle: { color: page.ink, fontSize: 12, fontWeight: 600 } })),
    grid: place.map(({ left, top }) => ({ left: `${left + 1}%`, top: `${top + head}%`, width: `${width - 3}%`, height: `${height - head - 2}%`,
      containLabel: true })),
    xAxis: panels.map((_, at) => axis(page, "", { gridIndex: at, type: "value", min: 1, max: longest, minInterval: 1, scale: false })),
    yAxis: panels.map(([, main], at) => axis(page, "", { gridIndex: at, type: "value", scale: main !== "lr",
      max: isShare(main) ? ({ max }) => (max > 90 ? 100 : null) : null, axisLabel: { color: page.soft, formatter: short, hideOverlap: true } })),
    series: panels.flatMap(([, main, training], at) => drawn.flatMap((one) => [line(at, one, main, "solid"),
      ...(training ? [line(at, one, training, "dashed")] : [])])) };
}

const isShare = (name) => (name === "score" ? sweep.percent : titleOf(name).endsWith("(%)"));
const describeEpochs = (drawn) => drawn.map(([row, name]) => `${name}, last epoch: ${listEpochs(row).at(-1) || "none"}`).join("; ");

// One line of text for each epoch.
function listEpochs(row) {
  const names = ["score", ...Object.keys(EPOCH_METRICS)].filter((name) => lineOf(row, name).length);
  return Array.from({ length: trials.epochs_done[row] ?? 0 }, (_, epoch) =>
    `${epoch + 1}: ` + names.map((name) => `${name} ${lineOf(row, name)[epoch] ?? "–"}`).join(", "));
}

BUILDERS.best = (page) => {
  const other = sweep.baseline === sweep.best ? null : sweep.baseline;
  return compareEpochs(page, sweep.best, other, other === null ? "" : `baseline ${nameOf(other)}`);
};

function wireDialog() {
  const dialog = document.getElementById("trial");
  for (const button of dialog.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = dialog.querySelector(`[data-put=${button.dataset.copy}]`);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        // A page from a file may not write to the clipboard. The text is selected instead, ready for Ctrl-C.
        getSelection().selectAllChildren(source);
        button.textContent = "Selected: press Ctrl-C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 3000);
    });
  }
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
