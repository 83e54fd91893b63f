/// <reference lib="dom" />

/**
 * Finds what is wrong with the places of what the page's chat shows: things that overlap, are outside of the window, are cut
 * off, or are too small, or that the page must be scrolled sideways. Which fonts there are makes no difference.
 */
export function layoutFaults(): string[] {
  /** What users press or read. */
  const PARTS =
    'button, a.button, input:not([type=file]), textarea, select, summary, h2, h3, p, pre, blockquote, th, td, .head, .code-head';
  /** What stands one below the other. */
  const AREAS = '.main > *, .trouble, .composer > *, .answer > *, .question > *';
  const root = document.querySelector('#chat')?.shadowRoot as ShadowRoot;
  const faults: string[] = [];
  const nameOf = (element: Element) => {
    const text = `${element.getAttribute('aria-label') ?? element.textContent}`.trim().slice(0, 24);
    return `${element.localName}.${element.className} "${text}"`;
  };
  const isSeen = (element: Element) => element.checkVisibility() && !element.closest('.unseen');
  /** The visible part of its box, as far as its ancestors do not cut it off. */
  const boxOf = (element: Element) => {
    let { left, top, right, bottom } = element.getBoundingClientRect();
    for (let one = element.parentElement; one; one = one.parentElement) {
      if (getComputedStyle(one).overflowX === 'visible') continue;
      const box = one.getBoundingClientRect();
      [left, top] = [Math.max(left, box.left), Math.max(top, box.top)];
      [right, bottom] = [Math.min(right, box.right), Math.min(bottom, box.bottom)];
    }
    return { element, left, top, right, bottom, isEmpty: right - left <= 1 || bottom - top <= 1 };
  };
  const boxes = [...root.querySelectorAll(PARTS)].filter(isSeen).map(boxOf);
  if (boxes.length === 0) faults.push('nothing is shown');
  const shown = boxes.filter(({ isEmpty }) => !isEmpty);
  const layerOf = (element: Element) => element.closest('.side, .menu, dialog, .to-end, header .why');
  for (const [at, one] of shown.entries()) {
    if (one.left < -1 || one.right > innerWidth + 1 || one.top < -1 || one.bottom > innerHeight + 1)
      faults.push(`outside of the window: ${nameOf(one.element)}`);
    for (const other of shown.slice(at + 1)) {
      if (one.element.contains(other.element) || layerOf(one.element) !== layerOf(other.element)) continue;
      const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (width > 1 && height > 1)
        faults.push(`one over the other: ${nameOf(one.element)} and ${nameOf(other.element)}`);
    }
  }
  for (const { element } of shown) {
    const { width, height } = element.getBoundingClientRect();
    const { fontSize, overflowX, textOverflow } = getComputedStyle(element);
    const isPressed = element.matches('button, a.button, input, textarea, select, summary');
    if (isPressed && (width < 32 || height < 32)) faults.push(`too small to press: ${nameOf(element)}`);
    if (Number.parseFloat(fontSize) < 12) faults.push(`too small to read: ${nameOf(element)}`);
    const mayScroll =
      overflowX === 'auto' || textOverflow === 'ellipsis' || element.matches('input, textarea');
    if (!mayScroll && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
      faults.push(`wider than its box: ${nameOf(element)}`);
  }
  for (const box of [
    ...root.querySelectorAll('.trouble, .consent, .code, .menu, dialog, textarea, button'),
  ].filter((one) => isSeen(one) && !boxOf(one).isEmpty)) {
    const { left, right } = box.getBoundingClientRect();
    if (left < 4 || right > innerWidth - 4) faults.push(`at the edge of the window: ${nameOf(box)}`);
  }
  /** The places of the lines of text in an element. */
  const linesOf = (element: Element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return [...range.getClientRects()].filter(({ width }) => width > 0);
  };
  for (const row of [...root.querySelectorAll('.files li, .trouble, .consent, .question .text')].filter(
    isSeen,
  )) {
    const { left, right } = row.getBoundingClientRect();
    // What is cut off with an ellipsis ends with its box.
    const lines = (one: Element) =>
      getComputedStyle(one).textOverflow === 'ellipsis' ? [one.getBoundingClientRect()] : linesOf(one);
    const texts = [...row.querySelectorAll('span, p'), ...(row.matches('.text') ? [row] : [])].flatMap(lines);
    if (texts.some((line) => line.left < left + 4 || line.right > right - 4))
      faults.push(`text at the border of its box: ${nameOf(row)}`);
  }
  const [composer] = [...root.querySelectorAll('.composer')].filter(isSeen);
  for (const box of [document.documentElement, ...root.querySelectorAll('.chat, .log')])
    if (box.scrollWidth > box.clientWidth + 1) faults.push(`must be scrolled sideways: ${nameOf(box)}`);
  const isLow = innerHeight < 420;
  if (composer && !isLow && Math.abs(composer.getBoundingClientRect().bottom - innerHeight) > 1)
    faults.push('the composer is not at the end of the window');
  let above: DOMRect | undefined;
  let parent: Element | null = null;
  for (const area of [...root.querySelectorAll(AREAS)].filter(isSeen)) {
    const box = area.getBoundingClientRect();
    if (area.parentElement !== parent) above = undefined;
    if (above && box.height > 0 && box.top < above.bottom - 1)
      faults.push(`not below the one before: ${nameOf(area)}`);
    if (box.height > 0) above = box;
    parent = area.parentElement;
  }
  return faults;
}
