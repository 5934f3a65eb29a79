// The list of sweeps asks for its rows again and again; the order that the user chose stays.
const LIST_POLL = 5000; // milliseconds
const list = document.querySelector("table.sortable");
const sortAgain = makeSortable(list);

async function refresh() {
  let isLost = false;
  try {
    const answer = await fetch(location.pathname);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [now, next] = [list.tBodies[0], page.querySelector("tbody")];
    document.getElementById("problems").replaceChildren(...page.getElementById("problems").children);
    if (now.dataset.seen !== next.innerHTML && !now.contains(document.activeElement)) {
      now.dataset.seen = next.innerHTML;
      now.replaceChildren(...next.children);
      sortAgain();
    }
  } catch {
    isLost = true;
  }
  document.getElementById("lost").hidden = !isLost;
  setTimeout(refresh, LIST_POLL);
}

setTimeout(refresh, LIST_POLL);
