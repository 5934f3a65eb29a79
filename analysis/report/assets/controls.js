// The choices of a figure's controls.
function fillControls(element) {
  const settings = JSON.parse(element.dataset.settings || "{}");
  const names = sweep.axes.map((one) => one.name);
  const choices = {
    by: ["state", ...names],
    over: [...names, ...Object.keys(COSTS).filter((cost) => trials[cost].some((value) => value !== null))],
  };
  for (const select of element.querySelectorAll("select[name]")) {
    for (const name of choices[select.name]) select.add(new Option(COSTS[name] || name, name));
    if (settings[select.name]) select.value = settings[select.name];
  }
  for (const box of element.querySelectorAll("input[type=checkbox]")) box.checked = Boolean(settings[box.name]);
}
