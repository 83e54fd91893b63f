/** The longest wait for a frame, in ms: hidden pages have no frames, and their timers fire at most once a second. */
const LONGEST_FRAME_MS = 1000;

/** Undefined outside of browsers, where a timer is used. */
declare const requestAnimationFrame: ((act: () => void) => number) | undefined;
declare const cancelAnimationFrame: (frame: number) => void;

/** Makes a function that calls `act` in the next frame. Several calls before that frame cause one call of `act`. */
export function oncePerFrame(act: () => void): () => void {
  let isScheduled = false;
  return () => {
    if (isScheduled) return;
    isScheduled = true;
    const hasFrames = typeof requestAnimationFrame === 'function';
    const run = () => {
      // Only one of the two may fire.
      clearTimeout(timer);
      if (frame !== undefined) cancelAnimationFrame(frame);
      isScheduled = false;
      act();
    };
    const timer = setTimeout(run, hasFrames ? LONGEST_FRAME_MS : 0);
    const frame = hasFrames ? requestAnimationFrame(run) : undefined;
  };
}
