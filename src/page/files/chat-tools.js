/** Functions that several modules of the page use. */

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element from the template with this id. */
export const fromTemplate = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Sets a text only if it differs, so that the browser does not draw it, or read it out, again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Calls `show` with the whole seconds since this call, at once and then repeatedly, until `show` returns true or the
 * returned function is called.
 */
export function countSeconds(show) {
  const since = performance.now();
  const tick = () => {
    if (show(Math.floor((performance.now() - since) / 1000))) clearInterval(timer);
  };
  const timer = setInterval(tick, 200);
  tick();
  return () => clearInterval(timer);
}

/** `75` as `1 min 15 s`. */
export function asDuration(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes === 0 ? `${seconds} s` : `${minutes} min ${seconds % 60} s`;
}

/** Calls `act` in the next frame, or after a quarter of a second if there is none, as in a hidden page. */
export function nextFrame(act) {
  let isDone = false;
  const actOnce = () => {
    if (isDone) return;
    isDone = true;
    clearTimeout(timer);
    act();
  };
  const timer = setTimeout(actOnce, 250);
  requestAnimationFrame(actOnce);
}

const ANNOUNCEMENT_MS = 10_000;

/** Has screen readers read out a text once, after what they are reading. */
export function announce(text) {
  const line = document.createElement('p');
  line.textContent = text;
  byId('live').append(line);
  // Removed once it was read out, so that users do not find it again.
  setTimeout(() => line.remove(), ANNOUNCEMENT_MS);
}

/** Calls `act`, which may make the page longer, and scrolls to the end if the page was scrolled to the end before. */
export function keepAtEnd(act) {
  const page = document.scrollingElement;
  const atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 60;
  act();
  if (atEnd && byId('messages').childElementCount > 0) scrollToEnd();
}

/** Adds a message to the end of `list`, or with `isPast` above those that this page has sent, and their answers. */
export function addTo(list, item, isPast) {
  if (!isPast) item.dataset.own = '';
  keepAtEnd(() => list.insertBefore(item, isPast ? list.querySelector('[data-own]') : null));
}

/** Scrolls to the end. */
export function scrollToEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

/** Copies the text of an element and returns true. If the browser does not allow it, selects the text instead. */
export async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}
