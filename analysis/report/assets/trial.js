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
  fillTrial(row);
  const dialog = document.getElementById("trial");
  dialog.showModal();
  drawOwnCurve(dialog.querySelector(".canvas"), row);
}

function fillTrial(row) {
  const dialog = document.getElementById("trial");
  const put = (key, text) => { dialog.querySelector(`[data-put=${key}]`).textContent = text; };
  const epochs = trials.epochs_done[row] ?? 0;
  const seconds = trials.seconds[row];
  put("title", `Trial ${nameOf(row)}`);
  put("facts", [scoreText(row), words(stateOf(row)), `${epochs} of ${trials.epochs[row]} epochs`,
    ...(seconds === null ? [] : [`${short(seconds)} s of training`])].join(" · "));
  put("reason", trials.reason[row] || "");
  const changed = differences(row);
  put("changes", changed.join("\n") || "The recipe is that of the baseline.");
  put("recipe", `format: ${sweep.format}\nrecipe:\n${toYaml(nest(recipeOf(row)), "  ")}`);
  put("scores", sweep.curves[row].map((score, epoch) => `${epoch + 1}: ${score ?? "–"}`).join("\n") || "No epoch has ended.");
  put("export", `sweep export ${sweep.name} --trial ${nameOf(row)}`);
}

function drawOwnCurve(canvas, row) {
  const chart = echarts.getInstanceByDom(canvas) || echarts.init(canvas);
  const other = sweep.best === row ? null : sweep.best;
  chart.setOption(compareCurves(pageColours(), row, other, `the best, ${other === null ? "" : nameOf(other)}`), true);
  chart.resize();
}

// The curve of one trial, and a thinner one of another trial if there is one.
function compareCurves(page, row, other, name) {
  const points = (one) => sweep.curves[one].map((score, epoch) => [epoch + 1, score]);
  const line = (name, one, color, width) => ({ name, type: "line", data: points(one), color, lineStyle: { width }, symbolSize: 5 });
  const series = [line(`trial ${nameOf(row)}`, row, COLOURS[0], 2.5)];
  if (other !== null) series.unshift(line(name, other, COLOURS[1], 1.2));
  return { ...basics(page), tooltip: { ...basics(page).tooltip, trigger: "axis" }, legend: legend(page), series,
    grid: { left: 50, right: 16, top: 34, bottom: 40 },
    xAxis: axis(page, "epoch", { type: "value", min: 1, minInterval: 1, scale: false }),
    yAxis: axis(page, sweep.label, { type: "value", nameGap: 38 }) };
}

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
