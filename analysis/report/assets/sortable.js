// Tables that are sorted by a click on a column.
// A cell such as `#1–3`, `93.1 %` or `+1.3 (0.5 to 2.1)` is sorted by its first number, other text by its letters.
function sortKey(cell) {
  const text = cell.textContent.trim();
  const number = text.replaceAll(",", "").match(/^[#+]?([-−]?\d+(\.\d+)?)/);
  return number ? Number(number[1].replace("−", "-")) : text.toLowerCase();
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  for (const [place, head] of heads.entries()) {
    head.replaceChildren(makeButton(head.textContent, () => {
      const up = head.ariaSort !== "ascending";
      const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
      const keyed = [...body.rows].map((row) => [sortKey(row.cells[place]), row]);
      keyed.sort(([a], [b]) => (up ? 1 : -1) * order(a, b));
      body.append(...keyed.map(([, row]) => row));
      for (const other of heads) other.ariaSort = other === head ? (up ? "ascending" : "descending") : null;
    }));
  }
}
