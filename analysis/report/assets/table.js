// The table of trials: it sorts, filters and searches, and shows as many rows as asked for.
const STEP = 15;

function makeTable(section, onTrial) {
  const body = section.querySelector("tbody");
  const head = section.querySelector("thead tr");
  const search = section.querySelector("input[type=search]");
  const state = section.querySelector("select");
  const status = section.querySelector("[role=status]");
  const more = section.querySelector("button.more");
  const numbers = (name, title, text) => ({ title, value: (row) => trials[name][row], text, right: true });
  const optional = (column) => rows.some((row) => column.value(row) !== null);
  const columns = [
    { title: "trial", value: (row) => trials.trial[row], text: nameOf },
    numbers("score", "score", (row) => (trials.score[row] === null ? "–" : scoreText(row))),
    { title: "state", value: stateOf, text: (row) => words(trials.state[row]) + (trials.is_baseline[row] ? " (baseline)" : "") },
    numbers("epochs_done", "epochs", (row) => `${trials.epochs_done[row] ?? 0} of ${trials.epochs[row]}`),
    ...[numbers("seconds", "training (s)", (row) => (trials.seconds[row] === null ? "–" : short(trials.seconds[row])))].filter(optional),
    ...axes.map((one) => ({ title: one.name, value: (row) => one.values[row], right: one.scale !== "options",
      text: (row) => one.values[row] === null ? "–" : one.scale === "options" ? one.options[one.values[row]] : short(one.values[row]) })),
  ];
  const texts = rows.map((row) => [nameOf(row), words(stateOf(row)), trials.reason[row], ...columns.slice(5).map((one) =>
    `${one.title}=${one.text(row)}`), ...differences(row)].join(" ").toLowerCase());
  let sorted = { column: 1, up: !sweep.maximise };
  let brushed = null;
  let limit = STEP;

  for (const [place, column] of columns.entries()) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.right) cell.className = "n";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    button.addEventListener("click", () => {
      sorted = { column: place, up: sorted.column === place ? !sorted.up : place !== 1 || !sweep.maximise };
      limit = STEP;
      render();
    });
    cell.append(button);
    head.append(cell);
  }
  for (const name of new Set(rows.map(stateOf))) state.add(new Option(words(name), name));

  function select() {
    const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const allowed = brushed && new Set(brushed);
    const found = rows.filter((row) => (!state.value || stateOf(row) === state.value) && (!allowed || allowed.has(row)) &&
      asked.every((word) => texts[row].includes(word)));
    const { value } = columns[sorted.column];
    const sign = sorted.up ? 1 : -1;
    // Trials without a value come last in both directions.
    return found.sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return sign * (one < other ? -1 : one > other ? 1 : 0) || a - b;
    });
  }

  function render() {
    const found = select();
    [...head.children].forEach((cell, place) => {
      cell.ariaSort = place === sorted.column ? (sorted.up ? "ascending" : "descending") : null;
    });
    body.replaceChildren(...found.slice(0, limit).map(makeRow));
    const selected = brushed ? ", selected by the parallel axes" : "";
    status.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} trials${selected}`;
    more.hidden = found.length <= limit;
  }

  function makeRow(row) {
    const line = document.createElement("tr");
    for (const [place, column] of columns.entries()) {
      const cell = document.createElement("td");
      if (column.right) cell.className = "n";
      if (place === 0) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "link";
        button.textContent = column.text(row);
        button.setAttribute("aria-label", `Show trial ${nameOf(row)}`);
        cell.append(button);
      } else cell.textContent = column.text(row);
      line.append(cell);
    }
    line.addEventListener("click", () => onTrial(row));
    return line;
  }

  const restart = () => { limit = STEP; render(); };
  search.addEventListener("input", restart);
  state.addEventListener("change", restart);
  more.addEventListener("click", () => { limit += 4 * STEP; render(); });
  render();
  return { brush(found) { brushed = found; restart(); } };
}
