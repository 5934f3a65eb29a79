// Keeps what the user has done when the page is loaded again: sorting, filters, choices, open parts, and the place.
const KEPT = `sweep report ${location.pathname}`;
const dialog = document.getElementById("trial");
const partOf = (details) => details.firstElementChild.textContent.replace(/\d+/g, "");
const anchors = [...document.querySelectorAll("h1, h2[id]:not(dialog h2)")];

function readPage() {
  const figures = [...document.querySelectorAll("[data-chart]")].map((element) => {
    const chart = echarts.getInstanceByDom(element.querySelector(".canvas"));
    const controls = [...element.querySelectorAll("select, input")].map((one) => (one.type === "checkbox" ? one.checked : one.value));
    const before = afterDraw.kept?.[element.dataset.chart]; // of a figure that is not drawn yet
    return [element.dataset.chart, { controls, legend: chart ? chart.getOption().legend?.[0]?.selected : before?.legend,
      intervals: chart ? [...readIntervals(chart)] : before?.intervals }];
  });
  const anchor = anchors.findLastIndex((one) => one.getBoundingClientRect().top < 80);
  return { figures: Object.fromEntries(figures), table: table.read(),
    open: [...document.querySelectorAll("details[open]")].map(partOf),
    trial: dialog.open ? { number: Number(dialog.dataset.trial), top: dialog.scrollTop } : null,
    focus: document.activeElement.type === "search" ? "input[type=search]" : document.activeElement.ariaLabel ? `[aria-label="${document.activeElement.ariaLabel}"]` : null,
    anchor: anchor < 0 ? null : [anchors[anchor].id, anchors[anchor].getBoundingClientRect().top] };
}

function restoreControls(figures) {
  for (const element of document.querySelectorAll("[data-chart]")) {
    [...element.querySelectorAll("select, input")].forEach((one, place) => {
      const value = figures[element.dataset.chart]?.controls[place];
      if (one.type === "checkbox") one.checked = Boolean(value);
      else if ([...one.options].some((option) => option.value === value)) one.value = value;
    });
  }
}

function restoreFigure(element, kept) {
  const chart = echarts.getInstanceByDom(element.querySelector(".canvas"));
  if (kept?.legend) chart.setOption({ legend: { selected: kept.legend } });
  if (kept?.intervals?.length) restoreIntervals(chart, new Map(kept.intervals));
}

function restorePage(kept) {
  for (const details of document.querySelectorAll("details")) details.open = kept.open.includes(partOf(details));
  const selected = document.querySelector("[data-chart=parallel]");
  if (selected && kept.figures.parallel?.intervals?.length) drawOnce(selected);
  table.restore(kept.table);
  const row = kept.trial ? trials.trial.indexOf(kept.trial.number) : -1;
  if (row >= 0) {
    showTrial(row);
    dialog.scrollTop = kept.trial.top;
  }
  if (kept.focus) document.querySelector(kept.focus)?.focus({ preventScroll: true });
  const anchor = kept.anchor && (kept.anchor[0] ? document.getElementById(kept.anchor[0]) : anchors[0]);
  if (anchor) scrollTo({ top: scrollY + anchor.getBoundingClientRect().top - kept.anchor[1], behavior: "instant" });
}

try {
  const kept = JSON.parse(sessionStorage.getItem(KEPT));
  history.scrollRestoration = "manual";
  if (kept) {
    restoreControls(kept.figures);
    afterDraw = Object.assign((element) => restoreFigure(element, kept.figures[element.dataset.chart]), { kept: kept.figures });
    restorePage(kept);
  }
  addEventListener("pagehide", () => sessionStorage.setItem(KEPT, JSON.stringify(readPage())));
} catch (error) {
  console.warn(error); // a browser without storage for files opens the page as for the first time
}
