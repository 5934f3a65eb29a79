// Starts the page: the figures, the table of trials and the dialog.
wireDialog();
const section = document.querySelector(".trials");
const table = makeTable(section, showTrial);
// A figure is drawn when it comes near the window, so that a page of many trials opens at once; the others follow.
const waiting = new Set(document.querySelectorAll("[data-chart]"));
let afterDraw = () => {}; // keep.js has more to do
const drawOnce = (element) => {
  if (!waiting.delete(element)) return;
  draw(element, BUILDERS, { onTrial: showTrial, onBrush: table.brush });
  afterDraw(element);
};
for (const element of waiting) {
  fillControls(element);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    drawOnce(element);
  }, { rootMargin: "300px" }).observe(element);
}
const drawNext = () => {
  for (const element of waiting) return drawOnce(element), setTimeout(drawNext, 50);
};
setTimeout(drawNext, 50);
for (const button of document.querySelectorAll("button[data-trial]")) {
  button.addEventListener("click", () => showTrial(trials.trial.indexOf(Number(button.dataset.trial))));
}
