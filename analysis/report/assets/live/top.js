// The part above the figures: state, progress, best trial, workers and rungs.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text; // an unchanged text keeps the user's selection
}

function showTop(head, share) {
  const state = share < 1 ? `reading, ${Math.floor(100 * share)} %` : head.is_paused ? "paused by a user" : words(head.state);
  setText(byId("state"), state);
  byId("state").dataset.state = head.is_paused ? "paused" : head.state;
  document.title = `${head.done}/${head.budget} ${sweep.name}`;
  const counts = Object.entries(head.counts).map(([name, count]) => `${count} ${words(name)}`).join(", ");
  showFacts([
    [head.best ? head.best.score : "–", head.best ? `the best, trial ${String(head.best.trial).padStart(4, "0")}` : "no trial has completed"],
    ...(sweep.baseline !== null && trials.score[sweep.baseline] !== null ? [[scoreText(sweep.baseline), `baseline ${nameOf(sweep.baseline)}`]] : []),
    [`${head.done} of ${head.budget}`, counts ? `trials: ${counts}` : "trials"],
    [head.elapsed, head.time_left ? `so far; ${head.time_left.text}, ${head.time_left.basis}` : "of running"],
  ]);
  const bar = byId("progress");
  bar.max = Math.max(1, head.budget);
  bar.value = head.done;
  setText(byId("machine"), head.machine);
  showWorkers(head.workers);
  showRungs(head.rungs);
  showBest(head.state === "running");
  showLinks(head);
  showList(byId("notes"), head.notes);
  const isRunning = head.state === "running";
  showNoFindings(isRunning, head.counts.completed || 0);
  for (const id of ["pause-button", "end-button"]) byId(id).disabled = !isRunning;
  byId("pause-button").dataset.action = head.is_paused ? "continue" : "pause";
  setText(byId("pause-button"), head.is_paused ? "Continue" : "Pause");
}

function showNoFindings(isRunning, completed) {
  setText(byId("found"), isRunning ? "Findings so far" : "Findings");
  if (found.version) return; // then they are here, or the reason why not
  setText(byId("no-findings"), completed ? `They are being computed from ${completed} completed trial${completed > 1 ? "s" : ""}.`
    : isRunning ? "They appear when the first trials have completed." : "No trial has completed, so there are none.");
}

// Gives a place one child for each item. Children stay the same elements, so that a button in them keeps the focus.
function showEach(place, items, make, fill) {
  while (place.children.length < items.length) place.append(make());
  while (place.children.length > items.length) place.lastChild.remove();
  items.forEach((item, at) => fill(place.children[at], item, at));
}

function showFacts(facts) {
  const make = () => {
    const box = document.createElement("div");
    box.append(document.createElement("b"), document.createElement("span"));
    return box;
  };
  showEach(byId("facts"), facts, make, (box, texts) => texts.forEach((text, part) => setText(box.children[part], text)));
}

// A line for each worker, with the trial that it trains.
function showWorkers(workers) {
  byId("workers-part").hidden = byId("workers-link").hidden = !workers.length;
  showEach(byId("workers"), workers, makeWorker, (line, trial, at) => {
    const row = trial === null ? undefined : rowOf.get(trial);
    const isFree = row === undefined;
    line.dataset.row = isFree ? "" : row;
    const texts = isFree ? [`worker ${at + 1}`, "", "waits for a trial", ""]
      : [`worker ${at + 1}`, nameOf(row), `epoch ${trials.epochs_done[row]} of ${trials.epochs[row]}`, scoreText(row)];
    setText(line.cells[0], texts[0]);
    setText(line.cells[1].firstChild, texts[1]);
    setText(line.cells[2].lastChild, texts[2]);
    setText(line.cells[3], texts[3]);
    const bar = line.cells[2].firstChild;
    bar.hidden = line.cells[4].firstChild.hidden = line.cells[1].firstChild.hidden = isFree;
    if (isFree) return;
    bar.max = trials.epochs[row];
    bar.value = trials.epochs_done[row];
    line.cells[1].firstChild.setAttribute("aria-label", `Show trial ${nameOf(row)}`);
    line.cells[4].firstChild.setAttribute("aria-label", `Stop trial ${nameOf(row)}`);
  });
}

function makeWorker() {
  const line = document.createElement("tr");
  const button = (text, className, call) => {
    const made = makeButton(text, () => call(Number(line.dataset.row)));
    made.className = className;
    return made;
  };
  const cells = [0, 1, 2, 3, 4].map(() => line.insertCell());
  cells[1].append(button("", "link", openTrial));
  cells[2].append(document.createElement("progress"), document.createElement("span"));
  cells[2].firstChild.setAttribute("aria-hidden", "true");
  cells[3].className = "n";
  cells[4].append(button("Stop", "", stopTrial));
  return line;
}

function showRungs(rungs) {
  const reached = rungs.filter((rung) => rung.reached);
  byId("rungs").closest("section").hidden = !reached.length;
  const make = () => {
    const line = document.createElement("tr");
    for (const name of ["", "n", "n"]) line.insertCell().className = name;
    return line;
  };
  showEach(byId("rungs"), reached, make, (line, rung) =>
    [rung.label, String(rung.reached), rung.passing || "–"].forEach((text, cell) => setText(line.cells[cell], text)));
}

function showBest(isRunning) {
  const hasBest = sweep.best !== null;
  byId("best").hidden = !hasBest;
  if (!hasBest) return;
  setText(byId("best-title"), `${isRunning ? "Best so far" : "The best"}: trial ${nameOf(sweep.best)}, ${scoreText(sweep.best)}`);
  setText(byId("best-changes"), differences(sweep.best).join("\n") || "The recipe is that of the baseline.");
  compareWithFinding();
}

// What the best trial chose is in the frame of the finding, once there is one of this trial.
function compareWithFinding() {
  const isOfBest = Boolean(byId("lead").querySelector(`button[data-trial="${trials.trial[sweep.best]}"]`));
  byId("best-choices").hidden = isOfBest;
  byId("lead-behind").hidden = isOfBest || !byId("lead").firstElementChild;
  setText(byId("lead-behind"), `Trial ${nameOf(sweep.best)} is the best now; the finding above is older and is being computed again.`);
}

function showLinks(head) {
  for (const [id, address] of [["mlflow-link", head.mlflow], ["ray-link", head.ray]]) {
    const link = byId(id);
    link.hidden = !address;
    // An address that is no web page could be a script.
    if (/^https?:\/\//.test(address || "")) link.href = address;
  }
}

function showList(place, texts) {
  place.parentElement.hidden = !texts.length;
  showEach(place, texts, () => document.createElement("li"), setText);
}
