// The table of trials: it sorts, filters and searches, and shows as many rows as asked for.
const STEP = 15;

function listColumns() {
  const numbers = (name, title, text) => ({ title, value: (row) => trials[name][row], text, right: true });
  const optional = (column) => rows.some((row) => column.value(row) !== null);
  return [
    { title: "trial", value: (row) => trials.trial[row], text: nameOf },
    numbers("score", "score", (row) => (trials.score[row] === null ? "–" : scoreText(row))),
    { title: "state", value: stateOf, text: (row) => words(trials.state[row]) + (trials.is_baseline[row] ? " (baseline)" : "") },
    numbers("epochs_done", "epochs", (row) => `${trials.epochs_done[row] ?? 0} of ${trials.epochs[row]}`),
    ...sweep.columns.filter(({ listed }) => listed).map(({ name, title }) =>
      numbers(name, title, (row) => (trials[name][row] === null ? "–" : short(trials[name][row])))).filter(optional),
    ...axes.map((one) => ({ title: one.name, isAxis: true, value: (row) => one.values[row], right: one.scale !== "options",
      text: (row) => one.values[row] === null ? "–" : one.scale === "options" ? one.options[one.values[row]] : short(one.values[row]) })),
  ];
}

function makeTable(section, onTrial) {
  const body = section.querySelector("tbody");
  const head = section.querySelector("thead tr");
  const search = section.querySelector("input[type=search]");
  const state = section.querySelector("select");
  const status = section.querySelector("[role=status]");
  const more = section.querySelector("button.more");
  const texts = []; // of each row, for the search
  const lines = new Map(); // the element of each row that was shown
  let columns = [];
  let sorted = { title: "score", up: !sweep.maximise };
  let brushed = null;
  let limit = STEP;

  // Takes in data that changed in these rows. The order, the filters and the number of rows stay.
  function refresh(changed) {
    const before = columns.map(({ title }) => title).join();
    columns = listColumns();
    for (const row of changed) {
      texts[row] = [nameOf(row), words(stateOf(row)), trials.reason[row], ...columns.filter(({ isAxis }) => isAxis).map((one) =>
        `${one.title}=${one.text(row)}`), ...differences(row)].join(" ").toLowerCase();
    }
    if (columns.map(({ title }) => title).join() !== before) {
      lines.clear();
      head.replaceChildren(...columns.map(makeHead));
    }
    const known = new Set([...state.options].map(({ value }) => value));
    for (const name of new Set(rows.map(stateOf))) if (!known.has(name)) state.add(new Option(words(name), name));
    render();
  }

  function makeHead(column) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.right) cell.className = "n";
    const title = column.title.replace(/[._](?=.)/g, "$&\u200b"); // on paper a long name may go on in a second line
    const button = makeButton(title, () => {
      const isSame = sorted.title === column.title;
      sorted = { title: column.title, up: isSame ? !sorted.up : column.title !== "score" || !sweep.maximise };
      limit = STEP;
      render();
    });
    cell.append(button);
    return cell;
  }

  function select() {
    const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const allowed = brushed && new Set(brushed);
    const found = rows.filter((row) => (!state.value || stateOf(row) === state.value) && (!allowed || allowed.has(row)) &&
      asked.every((word) => texts[row].includes(word)));
    const { value } = columns.find(({ title }) => title === sorted.title) || columns[0];
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
      cell.ariaSort = columns[place].title === sorted.title ? (sorted.up ? "ascending" : "descending") : null;
    });
    const shown = found.slice(0, limit).map(fillLine);
    // Lines that stay in their place keep the focus and the click that has begun on them.
    if (shown.length !== body.children.length || shown.some((line, place) => line !== body.children[place])) {
      const focused = body.contains(document.activeElement) ? document.activeElement : null;
      body.replaceChildren(...shown);
      if (focused && body.contains(focused)) focused.focus({ preventScroll: true });
    }
    const selected = brushed ? ", selected by the parallel axes" : "";
    const count = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} trials${selected}`;
    if (status.textContent !== count) status.textContent = count; // a screen reader reads each change
    more.hidden = found.length <= limit;
  }

  function fillLine(row) {
    if (!lines.has(row)) lines.set(row, makeLine(row));
    const line = lines.get(row);
    columns.forEach((column, place) => {
      const text = column.text(row);
      const holder = line.cells[place].firstElementChild || line.cells[place];
      if (holder.textContent !== text) holder.textContent = text;
    });
    return line;
  }

  function makeLine(row) {
    const line = document.createElement("tr");
    for (const [place, column] of columns.entries()) {
      const cell = line.insertCell();
      if (column.right) cell.className = "n";
      if (place > 0) continue;
      const button = makeButton("");
      button.className = "link";
      button.setAttribute("aria-label", `Show trial ${nameOf(row)}`);
      cell.append(button);
    }
    line.addEventListener("click", () => onTrial(row));
    return line;
  }

  const restart = () => { limit = STEP; render(); };
  search.addEventListener("input", restart);
  state.addEventListener("change", restart);
  more.addEventListener("click", () => { limit += 4 * STEP; render(); });
  refresh(rows);
  return {
    brush(found) { brushed = found; restart(); },
    read: () => ({ sorted, limit, search: search.value, state: state.value }),
    restore(kept) {
      sorted = kept.sorted;
      search.value = kept.search;
      if ([...state.options].some(({ value }) => value === kept.state)) state.value = kept.state;
      limit = kept.limit;
      render();
    },
  };
}
