// Follows the sweep: asks the server each second for what has changed, and shows it without loading the page again.
const POLL = 1000; // milliseconds between two questions
const HIDDEN_POLL = 5000; // the same while the page is not visible
const rowOf = new Map(); // the row of each trial
const known = { session: "", version: 0 };
const figures = []; // of the page: whether each is visible, when it may be drawn again, and how
let table;
let shownRow = null; // of the trial in the dialog
const pageName = Math.random().toString(36).slice(2);
let isOver = false; // whether the sweep and the command with this dashboard have ended, so that nothing will change
let isRead = true; // whether the page has all trials; those of a large sweep come in parts

function begin(base) {
  const columns = Object.fromEntries(base.columns.map(({ name }) => [name, []]));
  rowOf.clear();
  const { base: fixed, axes: parameters, ...facts } = base;
  take({ ...facts, trials: columns, fixed, varying: {}, curves: [], epochs: [], rungs: [], best: null, baseline: null,
    effects: sweep ? sweep.effects : [],
    axes: parameters.map((one) => ({ ...one, values: [] })) });
}

// Takes in rows of trials, and returns which rows of the columns changed.
function merge(changes) {
  const changed = changes.rows.map((row) => {
    const at = rowOf.get(row.trial) ?? rowOf.size;
    rowOf.set(row.trial, at);
    for (const { name } of sweep.columns) trials[name][at] = row[name];
    sweep.curves[at] = row.curve;
    sweep.epochs[at] = row.metrics;
    if (row.recipe) mergeRecipe(at, row);
    return at;
  });
  sweep.best = rowOf.get(changes.best) ?? null; // its row may come with a later answer
  const baseline = rowOf.get(changes.baseline) ?? null;
  const isOther = baseline !== sweep.baseline; // the differences of all trials are then others
  sweep.baseline = baseline;
  sweep.rungs = changes.rungs;
  take(sweep);
  return isOther ? rows : changed;
}

function mergeRecipe(at, { recipe, places }) {
  for (const name of Object.keys(recipe)) {
    sweep.varying[name] ??= Array(at).fill(sweep.fixed[name] ?? null);
  }
  for (const [name, values] of Object.entries(sweep.varying)) {
    while (values.length < at) values.push(sweep.fixed[name] ?? null);
    values[at] = name in recipe ? recipe[name] : sweep.fixed[name] ?? null;
  }
  sweep.axes.forEach((one, place) => {
    const value = places[place];
    if (one.scale === "options" && value !== null && !one.options.includes(value)) one.options.push(value);
    one.values[at] = one.scale === "options" && value !== null ? one.options.indexOf(value) : value;
  });
}

async function ask() {
  const answer = await fetch(`state?since=${known.version}&session=${known.session}&filling=${isRead ? 0 : 1}&page=${pageName}`);
  if (!answer.ok) throw new Error(await answer.text());
  const state = await answer.json();
  setText(byId("problem"), state.problem);
  byId("problem").hidden = !state.problem;
  byId("waiting").hidden = Boolean(state.head);
  byId("content").hidden = !state.head;
  if (!state.head) return;
  if (state.sweep) begin(state.sweep);
  const changed = state.rows ? merge(state) : [];
  Object.assign(known, { session: state.session, version: state.version });
  if (state.rows || state.sweep) show(changed, Boolean(state.sweep));
  isRead = state.share === 1;
  showTop(state.head, state.share);
  isOver = Boolean(state.is_over);
}

function show(changed, isNew) {
  if (!table) start();
  else table.refresh(isNew ? rows : changed);
  for (const figure of figures) figure.isDue = true;
  if (byId("trial").open && changed.includes(shownRow)) {
    fillTrial(shownRow);
    drawOwnCurve(byId("trial").querySelector(".canvas"), shownRow);
  }
}

// The findings are made in the background when trials have completed, at most in a third of the time of one CPU.
const found = { version: 0 };
async function askFindings() {
  const answer = await fetch(`findings?since=${found.version}${isOver ? `&leaving=${pageName}` : ""}`);
  const news = answer.ok ? await answer.json() : {};
  if (news.html === undefined) return;
  found.version = news.version;
  setText(byId("no-findings"), news.problem);
  if (news.html) showFindings(news);
}

function showFindings(news) {
  const place = byId("findings");
  const opened = [...place.querySelectorAll("details")].filter(({ open }) => open).map((one) => one.firstElementChild.textContent);
  figures.splice(0, figures.length, ...figures.filter(({ element }) => !place.contains(element)));
  place.innerHTML = news.html;
  byId("lead").innerHTML = news.lead;
  compareWithFinding();
  for (const one of place.querySelectorAll("details")) one.open = opened.includes(one.firstElementChild.textContent);
  for (const button of byId("content").querySelectorAll("button[data-trial]")) {
    button.addEventListener("click", () => openTrial(rowOf.get(Number(button.dataset.trial))));
  }
  sweep.effects = news.effects;
  for (const element of place.querySelectorAll("[data-chart]")) addFigure(element);
}

function start() {
  wireDialog();
  table = makeTable(document.querySelector(".trials"), openTrial);
  for (const element of document.querySelectorAll("[data-chart]")) addFigure(element);
}

function addFigure(element) {
  const figure = { element, isVisible: false, isDue: true, next: 0, refresh: null };
  fillControls(element);
  if (element.dataset.chart === "parallel") element.querySelector(".canvas").style.minWidth = `${95 * (sweep.axes.length + 1)}px`;
  new IntersectionObserver((entries) => { figure.isVisible = entries.at(-1).isIntersecting; }, { rootMargin: "200px" }).observe(element);
  figures.push(figure);
}

// Draws the visible figures whose data changed, and one that was never drawn; at the end the others too, one at a time. A
// figure that takes long is drawn less often.
function drawFigures() {
  let isAhead = false;
  const hasScore = trials && trials.score.some((score) => score !== null);
  for (const figure of figures) {
    const now = performance.now();
    const isEmpty = !hasScore || (figure.element.dataset.chart === "best" && sweep.best === null);
    figure.element.hidden = isEmpty;
    if (isEmpty || !figure.isDue || now < figure.next || (!figure.isVisible && (isAhead || (figure.refresh && !isOver)))) continue;
    isAhead = isAhead || !figure.isVisible;
    if (figure.refresh) figure.refresh();
    else figure.refresh = draw(figure.element, BUILDERS, { onTrial: openTrial, onBrush: table.brush });
    figure.isDue = false;
    figure.next = performance.now() + Math.max(POLL, 20 * (performance.now() - now));
  }
}

function openTrial(row) {
  shownRow = row;
  byId("log").textContent = "";
  showTrial(row);
  byId("stop-trial").hidden = !["running", "interrupted"].includes(trials.state[row]);
  showLog();
}

// The end of the log follows the trial, unless the user has scrolled up in it.
async function showLog() {
  const row = shownRow;
  if (!byId("trial").open || !byId("log-part").open) return;
  if (isOver) return setText(byId("log"), `Read the log with: sweep show ${sweep.name} ${nameOf(row)}`);
  const answer = await fetch(`trials/${trials.trial[row]}/log`);
  if (!answer.ok || row !== shownRow) return;
  const place = byId("log");
  const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 30;
  setText(place, await answer.text());
  if (isAtEnd) place.scrollTop = place.scrollHeight;
}

// From here on the page needs no server.
function showEnd() {
  byId("over").hidden = false;
  document.documentElement.classList.add("is-over");
}

async function follow() {
  let failures = 0;
  for (;;) {
    try {
      if (!isOver) {
        await ask();
        failures = 0;
        if (table && isRead) await askFindings();
        if (isOver) showEnd();
      }
      drawFigures();
      if (!isOver && shownRow !== null && trials.state[shownRow] === "running") await showLog();
    } catch (error) {
      failures += 1;
      if (!(error instanceof TypeError)) console.error(error); // a TypeError of fetch: the server has ended
    }
    document.documentElement.classList.toggle("is-lost", failures > 1);
    byId("lost").hidden = failures < 2;
    const pause = isRead || failures ? (document.hidden ? HIDDEN_POLL : POLL) : 0;
    await new Promise((resolve) => { setTimeout(resolve, pause); });
  }
}

document.documentElement.classList.add("interactive");
wireRequests();
byId("stop-trial").addEventListener("click", () => stopTrial(shownRow));
byId("copy-trial").addEventListener("click", () => { byId("trial").close(); copyTrial(shownRow); });
byId("log-part").addEventListener("toggle", showLog);
byId("best-show").addEventListener("click", () => openTrial(sweep.best));
follow();
