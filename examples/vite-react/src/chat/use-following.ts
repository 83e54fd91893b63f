import { useLayoutEffect, useRef, useState } from 'react';

/** How near the end counts as being there, in px. */
const NEAR = 48;

/** Keeps the end of a list in sight as long as the user has not scrolled away from it. */
export function useFollowing() {
  const ref = useRef<HTMLDivElement>(null);
  const [isAtEnd, setIsAtEnd] = useState(true);

  function toEnd() {
    ref.current?.scrollTo({ top: ref.current.scrollHeight });
  }

  // Each time that the list is drawn, since its height may have changed.
  useLayoutEffect(() => {
    if (isAtEnd) toEnd();
  });

  function onScroll() {
    const list = ref.current;
    if (list) setIsAtEnd(list.scrollHeight - list.scrollTop - list.clientHeight < NEAR);
  }

  return { ref, onScroll, isAtEnd, toEnd };
}
