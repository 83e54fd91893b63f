/** What `jest.useFakeTimers` leaves real if a test moves nothing but intervals. */
export const ALL_BUT_INTERVALS = [
  'Date',
  'hrtime',
  'performance',
  'nextTick',
  'queueMicrotask',
  'setImmediate',
  'clearImmediate',
  'setTimeout',
  'clearTimeout',
] as const;
