// The buttons: each sends a request to the server, which hands it to the driver of the sweep.
const byId = (id) => document.getElementById(id);

// Shows the answer in `place`: below the buttons of the page, or in the dialog that stays open if it is refused.
async function send(values, place = byId("answer")) {
  let sentence;
  let isDone = false;
  try {
    const answer = await fetch("requests", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values) });
    const text = await answer.text();
    isDone = answer.ok;
    sentence = text.startsWith("{") ? JSON.parse(text).sentence : text;
  } catch {
    sentence = "The dashboard does not answer, so nothing was done.";
  }
  say(isDone ? byId("answer") : place, sentence, isDone);
  return isDone;
}

let forget;
function say(place, sentence, isDone) {
  place.textContent = sentence;
  place.className = isDone ? "box" : "box warn";
  place.hidden = false;
  clearTimeout(forget);
  forget = setTimeout(() => { byId("answer").hidden = true; }, isDone ? 15000 : 30000);
}

// A dialog that opens does not show the refusal of an earlier time.
function openDialog(id) {
  byId(`${id}-problem`).hidden = true;
  byId(id).showModal();
}

// Asks before something ends that cannot be undone.
function confirmed(question, label) {
  const dialog = byId("confirm");
  dialog.querySelector("p").textContent = question;
  dialog.querySelector("button[value=yes]").textContent = label;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function stopTrial(row) {
  const question = `Stop trial ${nameOf(row)}? It ends after its current epoch and counts as stopped; it does not start again.`;
  if (await confirmed(question, "Stop the trial")) await send({ action: "stop", trial: nameOf(row) });
}

async function copyTrial(row) {
  const answer = await fetch(`trials/${trials.trial[row]}/recipe`);
  openAdd(answer.ok ? await answer.text() : "");
}

function openAdd(text) {
  byId("recipe").value = text;
  openDialog("add");
  byId("recipe").focus();
}

function wireRequests() {
  byId("add-button").addEventListener("click", () => openAdd(byId("recipe").value));
  byId("add-send").addEventListener("click", async () => {
    if (await send({ action: "add", recipe: byId("recipe").value }, byId("add-problem"))) byId("add").close();
  });
  byId("pause-button").addEventListener("click", () => send({ action: byId("pause-button").dataset.action }));
  byId("extend-button").addEventListener("click", () => openDialog("extend"));
  byId("extend-send").addEventListener("click", async () => {
    if (await send({ action: "extend", trials: byId("more-trials").valueAsNumber }, byId("extend-problem"))) byId("extend").close();
  });
  byId("end-button").addEventListener("click", async () => {
    const question = `End the sweep ${sweep.name} now? Running trials are interrupted; sweep resume ${sweep.name} continues it later.`;
    if (await confirmed(question, "End the sweep")) await send({ action: "end" });
  });
}
