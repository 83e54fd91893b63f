/**
 * A frame that does not come is not waited for longer than this, in ms: in hidden pages there are none, and timers
 * come once a second at most.
 */
const LONGEST_FRAME_MS = 1000;

/** There are none outside of browsers, where a timer stands for them. */
declare const requestAnimationFrame: ((act: () => void) => number) | undefined;
declare const cancelAnimationFrame: (frame: number) => void;

/** Calls `act` once in the next frame, however often it is asked for before that. */
export function oncePerFrame(act: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    const framed = typeof requestAnimationFrame === 'function';
    const now = () => {
      // The one that has not come must not come later, in a frame that has had its call.
      clearTimeout(timer);
      if (frame !== undefined) cancelAnimationFrame(frame);
      asked = false;
      act();
    };
    const timer = setTimeout(now, framed ? LONGEST_FRAME_MS : 0);
    const frame = framed ? requestAnimationFrame(now) : undefined;
  };
}
