/** Small things that more than one part of the page needs. */

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Sets a text only if it is another one: nothing is drawn, or read out, for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Calls `show` with the whole seconds since now, at once and again and again, until it says that it has seen the last
 * of them by returning true, or the function that this returns is called.
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
export function inWords(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes === 0 ? `${seconds} s` : `${minutes} min ${seconds % 60} s`;
}

/** Calls `act` in the next frame; a page that is hidden draws none, and waits no longer than a quarter of a second. */
export function nextFrame(act) {
  let done = false;
  const once = () => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    act();
  };
  const timer = setTimeout(once, 250);
  requestAnimationFrame(once);
}

const HEARD_MS = 10_000;

/** Says something to those who do not see the page, once, after what is being said. */
export function announce(text) {
  const line = document.createElement('p');
  line.textContent = text;
  byId('live').append(line);
  // Said by then; nobody should find it a second time.
  setTimeout(() => line.remove(), HEARD_MS);
}

/** Does something that makes the page longer, and stays at the end of a conversation if that is being looked at. */
export function growing(act) {
  const page = document.scrollingElement;
  const atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 60;
  act();
  if (atEnd && byId('messages').childElementCount > 0) toEnd();
}

/** Scrolls to the end. */
export function toEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

/** Copies a text; where the browser does not let it, as on a page without https, it selects it. */
export async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}
