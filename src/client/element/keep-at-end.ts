/** How near to its end a box counts as scrolled to the end, in px. */
const NEAR_END = 60;

/** Keeps a reader at the end of `box` there while its content grows. Returns the function that scrolls to the end. */
export function keepAtEnd(box: HTMLElement, content: HTMLElement): () => void {
  let isAtEnd = true;
  let before = 0;
  const scrollToEnd = () => {
    isAtEnd = true;
    box.scrollTop = box.scrollHeight;
  };
  box.addEventListener('scroll', () => {
    const { scrollTop } = box;
    const isNear = box.scrollHeight - scrollTop - box.clientHeight < NEAR_END;
    // What is added moves the end away; only a reader scrolls back.
    if (isNear || scrollTop < before) isAtEnd = isNear;
    before = scrollTop;
  });
  const resizes = new ResizeObserver(() => isAtEnd && scrollToEnd());
  for (const one of [box, content]) resizes.observe(one);
  return scrollToEnd;
}
